//! Open files that are kept by name, for whoever opens the same ones again and again. A kept one
//! never shows what a name stood for before a rename or removal that is done.
//!
//! No lock and no call: opening takes time, and somebody may rename meanwhile. So
//!
//! ```text
//! a reader   look → Absent(opening) → opens the file → keep(opening)
//! a change   begin → renames, removes or creates → end
//! ```
//!
//! where each step is one short turn under the owner's lock. What a reader opened is not kept if a
//! change began or ended since it looked: it may be the old file or the new one.

use std::collections::BTreeMap;

/// Open files by name.
#[derive(Debug)]
pub struct Handles<H> {
    kept: BTreeMap<String, Kept<H>>,
    most: usize,
    /// Begins and ends of changes. One count for all names: changes are rare, and a count for each
    /// name that ever was would grow for ever.
    changes: u64,
    looks: u64,
}

#[derive(Debug)]
struct Kept<H> {
    handle: H,
    /// The look that asked for it last.
    looked: u64,
}

/// Somebody is opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    changes: u64,
}

/// What [`Handles::look`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked<H> {
    Kept(H),
    Absent(Opening),
}

impl<H: Clone> Handles<H> {
    /// Keeps up to `most` open files, and closes those first that nobody asked for the longest.
    pub fn new(most: usize) -> Handles<H> {
        Handles { kept: BTreeMap::new(), most, changes: 0, looks: 0 }
    }

    pub fn look(&mut self, name: &str) -> Looked<H> {
        self.looks += 1;
        match self.kept.get_mut(name) {
            Some(kept) => {
                kept.looked = self.looks;
                Looked::Kept(kept.handle.clone())
            }
            None => Looked::Absent(Opening { changes: self.changes }),
        }
    }

    /// Keeps what was opened after the look that gave `opening`, unless a name changed since.
    pub fn keep(&mut self, name: &str, opening: Opening, handle: H) {
        if opening.changes != self.changes || self.most == 0 {
            return;
        }
        if self.kept.len() >= self.most && !self.kept.contains_key(name) {
            let longest = self.kept.iter().min_by_key(|(_, kept)| kept.looked).map(|(name, _)| name.clone());
            longest.and_then(|name| self.kept.remove(&name));
        }
        self.kept.insert(name.to_string(), Kept { handle, looked: self.looks });
    }

    /// `names` are about to stand for other files, or for none.
    pub fn begin(&mut self, names: &[&str]) {
        self.changes += 1;
        for name in names {
            self.kept.remove(*name);
        }
    }

    /// The change is done, or failed.
    pub fn end(&mut self, names: &[&str]) {
        // What was opened and kept while it was under way may be the old file.
        self.begin(names);
    }

    pub fn len(&self) -> usize {
        self.kept.len()
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that knows what each name stands for, and how many changes of it are done.
    #[derive(Default)]
    struct Names(BTreeMap<&'static str, u32>);

    /// One who opens `name`, or renames `new` to it, or removes it: three steps each.
    #[derive(Clone, Copy, Debug)]
    enum Who {
        Reader,
        Rename,
        Remove,
    }

    #[derive(Clone, Copy, Debug, Default)]
    struct Progress {
        step: usize,
        opening: Option<Opening>,
        opened: Option<u32>,
    }

    struct World {
        names: Names,
        handles: Handles<u32>,
        /// No look may show a file older than this: changes that ended.
        least: u32,
        next: u32,
    }

    impl World {
        fn new() -> World {
            let mut names = Names::default();
            names.0.insert("a", 0);
            World { names, handles: Handles::new(4), least: 0, next: 1 }
        }

        fn step(&mut self, who: Who, at: &mut Progress) {
            match (who, at.step) {
                (Who::Reader, 0) => match self.handles.look("a") {
                    Looked::Kept(file) => assert!(file >= self.least, "file {file} where {} is the oldest", self.least),
                    Looked::Absent(opening) => at.opening = Some(opening),
                },
                (Who::Reader, 1) => at.opened = at.opening.and_then(|_| self.names.0.get("a").copied()),
                (Who::Reader, _) => {
                    if let (Some(opening), Some(file)) = (at.opening, at.opened) {
                        self.handles.keep("a", opening, file);
                    }
                }
                (_, 0) => self.handles.begin(&["a"]),
                (Who::Rename, 1) => {
                    self.names.0.insert("a", self.next);
                    at.opened = Some(self.next);
                    self.next += 1;
                }
                (Who::Remove, 1) => {
                    self.names.0.remove("a");
                    at.opened = Some(self.next);
                    self.next += 1;
                }
                (_, _) => {
                    self.handles.end(&["a"]);
                    self.least = self.least.max(at.opened.expect("it was done"));
                }
            }
            at.step += 1;
        }

        /// When all is quiet a look shows what the name stands for, if it shows anything.
        fn check(&mut self, order: &[usize]) {
            if let Looked::Kept(file) = self.handles.look("a") {
                assert_eq!(Some(&file), self.names.0.get("a"), "after {order:?}");
            }
        }
    }

    /// Runs `who` in every order of their steps.
    fn every_order(who: &[Who]) -> (usize, usize) {
        let (mut orders, mut kept) = (0, 0);
        let mut stack: Vec<Vec<usize>> = vec![Vec::new()];
        while let Some(order) = stack.pop() {
            if order.len() == who.len() * 3 {
                let mut world = World::new();
                let mut progress = vec![Progress::default(); who.len()];
                for actor in &order {
                    world.step(who[*actor], &mut progress[*actor]);
                }
                world.check(&order);
                orders += 1;
                kept += usize::from(!world.handles.is_empty());
                continue;
            }
            for actor in 0..who.len() {
                if order.iter().filter(|other| **other == actor).count() < 3 {
                    let mut longer = order.clone();
                    longer.push(actor);
                    stack.push(longer);
                }
            }
        }
        (orders, kept)
    }

    #[test]
    fn no_order_of_steps_keeps_an_old_file() {
        for (who, orders) in [
            (&[Who::Reader, Who::Rename][..], 20),
            (&[Who::Reader, Who::Remove], 20),
            (&[Who::Reader, Who::Reader, Who::Rename], 1_680),
            (&[Who::Reader, Who::Rename, Who::Remove], 1_680),
            (&[Who::Reader, Who::Reader, Who::Rename, Who::Rename], 369_600),
        ] {
            let (seen, kept) = every_order(who);
            assert_eq!(seen, orders, "{who:?}");
            // After a removal alone nothing is left to be kept.
            let renamed = who.iter().any(|who| matches!(who, Who::Rename));
            assert_eq!(kept > 0, renamed, "{who:?}: {kept}");
        }
    }

    #[test]
    fn the_one_nobody_asks_for_is_closed_first() {
        let mut handles = Handles::new(2);
        let open = |handles: &mut Handles<u32>, name: &str, file| match handles.look(name) {
            Looked::Kept(file) => file,
            Looked::Absent(opening) => {
                handles.keep(name, opening, file);
                file
            }
        };
        assert_eq!((open(&mut handles, "a", 1), open(&mut handles, "b", 2)), (1, 2));
        assert_eq!((open(&mut handles, "a", 9), open(&mut handles, "c", 3)), (1, 3));
        assert_eq!((open(&mut handles, "a", 9), open(&mut handles, "b", 4)), (1, 4));
        assert_eq!(handles.len(), 2);
    }
}
