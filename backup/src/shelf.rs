//! Names and bytes. A folder today; whatever `object_store` speaks to may stand behind it.

use crate::{Error, Result};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const MARK: &str = "kvorum-backup";
const FORMAT: &str = "{\"format\":1}\n";

/// Where backups lie.
#[derive(Clone, Debug)]
pub struct Shelf {
    store: Arc<dyn ObjectStore>,
}

impl Shelf {
    /// A folder. A new or empty one becomes a shelf if `create` says so.
    ///
    /// # Errors
    /// The folder holds something else, or a later format; what the system says.
    pub async fn folder(path: &Path, create: bool) -> Result<Shelf> {
        if create {
            make(path)?;
        }
        let store = LocalFileSystem::new_with_prefix(path).map_err(named(&path.display().to_string()))?;
        // A name is flushed before anything relies on it.
        Shelf::open(Arc::new(store.with_fsync(true)), &path.display().to_string(), create).await
    }

    /// What stands behind any store of objects.
    ///
    /// # Errors
    /// As [`Shelf::folder`].
    pub async fn open(store: Arc<dyn ObjectStore>, called: &str, create: bool) -> Result<Shelf> {
        let shelf = Shelf { store };
        match shelf.get(MARK).await {
            Ok(mark) if mark == FORMAT.as_bytes() => return Ok(shelf),
            Ok(_) => return Err(Error::Foreign(format!("{called}: backups of a later format, or of another program"))),
            Err(Error::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        if !create {
            return Err(Error::Foreign(format!("{called}: there are no backups here")));
        }
        if let Some((name, _)) = shelf.list("").await?.first() {
            return Err(Error::Foreign(format!("{called}: {name} lies here, and no backups: take an empty folder")));
        }
        shelf.put(MARK, Bytes::from_static(FORMAT.as_bytes())).await?;
        Ok(shelf)
    }

    /// Writes all of it under this name, durably; before that the name is not there.
    pub(crate) async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let options = PutOptions { mode: PutMode::Overwrite, ..PutOptions::default() };
        let put = self.store.put_opts(&Name::from(name), PutPayload::from(bytes), options).await;
        put.map(drop).map_err(named(name))
    }

    /// All of it.
    pub(crate) async fn get(&self, name: &str) -> Result<Bytes> {
        let read = async { self.store.get(&Name::from(name)).await?.bytes().await };
        read.await.map_err(|error| match error {
            object_store::Error::NotFound { .. } => Error::Missing { name: name.to_owned() },
            other => named(name)(other),
        })
    }

    /// Names that begin with this folder, with their lengths, in order.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<(String, u64)>> {
        let prefix = (!folder.is_empty()).then(|| Name::from(folder));
        let listed = self.store.list(prefix.as_ref()).map_ok(|meta| (meta.location.to_string(), meta.size));
        let mut names: Vec<(String, u64)> = listed.boxed().try_collect().await.map_err(named(folder))?;
        names.sort_unstable();
        Ok(names)
    }

    pub(crate) async fn remove(&self, name: &str) -> Result<()> {
        match self.store.delete(&Name::from(name)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            other => other.map_err(named(name)),
        }
    }
}

fn named(name: &str) -> impl Fn(object_store::Error) -> Error + use<> {
    let name = name.to_owned();
    move |source| Error::Shelf { name: name.clone(), source }
}

/// For its owner alone: everything that the cluster holds is in it.
fn make(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let missing = path.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists()).count();
    if missing > 0 {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // The store flushes what is in it, and not what is above it.
        for above in path.canonicalize()?.ancestors().skip(1).take(missing) {
            fs::File::open(above)?.sync_all()?;
        }
    }
    Ok(())
}
