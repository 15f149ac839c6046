//! The token with which a client says who it is.

use std::sync::{Mutex, PoisonError};

use crate::{Client, Credentials, Options, Result};

/// The token in use, and how it is replaced.
#[derive(Debug)]
pub(crate) struct Token {
    user: Option<Credentials>,
    held: Mutex<Held>,
    /// Held while a new one is asked for, so that it is asked for once.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Held {
    token: Option<String>,
    /// How often it was replaced; 0: never asked for.
    generation: u64,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Token {
    pub(crate) fn new(options: &Options) -> Token {
        let held = Held { token: options.token.clone(), generation: 0 };
        Token { user: options.user.clone(), held: Mutex::new(held), asking: tokio::sync::Mutex::default() }
    }

    /// Whether another one can be had.
    pub(crate) fn renewable(&self) -> bool {
        self.user.is_some()
    }

    /// The token, and the number of its life.
    pub(crate) fn held(&self) -> (Option<String>, u64) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (held.token, held.generation)
    }

    fn replace(&self, token: Option<String>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Held { token, generation: held.generation + 1 };
    }
}

impl Client {
    /// Gets a token, if there is a user and no token yet. Every request does
    /// this first; a program that wants to know at once that a password is
    /// wrong may do it too.
    ///
    /// # Errors
    /// See [`crate::Error`]. That the cluster asks for no users is none.
    pub async fn sign_in(&self) -> Result<()> {
        match self.token.held() {
            (_, 0) if self.token.renewable() => self.renew_token(0).await,
            _ => Ok(()),
        }
    }

    /// Replaces the token of this life, unless somebody has done so already.
    pub(crate) async fn renew_token(&self, generation: u64) -> Result<()> {
        let Some(user) = &self.token.user else {
            return Ok(());
        };
        let _once = self.token.asking.lock().await;
        if self.token.held().1 != generation {
            return Ok(());
        }
        match self.ask_for_token(user).await {
            Ok(token) => self.token.replace(Some(token)),
            Err(error) if error.says("etcdserver: authentication is not enabled") => self.token.replace(None),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
