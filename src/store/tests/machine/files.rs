//! The simulated disk as the store's edge sees it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::disk::{Machine, Node};
use crate::store::edge::{Files, Listed, Mode, Patience, SharedMap, StoreFile};

struct Open {
    machine: Machine,
    inode: usize,
}

impl Machine {
    pub(super) fn inode(&self, path: &Path, mode: Mode) -> io::Result<usize> {
        let create = matches!(mode, Mode::Create | Mode::Empty);
        self.open(path, create, mode == Mode::Empty)
    }
}

impl Files for Machine {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn StoreFile>> {
        Ok(Box::new(Open {
            inode: self.inode(path, mode)?,
            machine: self.clone(),
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Listed>> {
        let listed = Machine::list(self, dir)?.into_iter();
        Ok(listed
            .map(|(name, is_dir)| Listed { name, is_dir })
            .collect())
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        match self.node(path)? {
            Node::Dir => Ok(0),
            Node::File(inode) => Machine::len(self, inode),
        }
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        Machine::create_dir_all(self, dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Machine::rename(self, from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.remove(path, false)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.remove(dir, true)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Machine::sync_dir(self, dir)
    }

    fn sync_file_system(&self, _: &Path) -> io::Result<bool> {
        self.sync_all()?;
        Ok(true)
    }

    fn map(&self, path: &Path, bytes: usize) -> io::Result<SharedMap> {
        let inode = self.inode(path, Mode::Create)?;
        let mapped = Machine::map(self, inode, bytes)?;
        let start = mapped.start();
        // SAFETY: the memory lives as long as `mapped`; the machine only reads it, while
        // no task runs.
        Ok(unsafe { SharedMap::new(start, bytes, Arc::new(mapped)) })
    }

    fn map_existing(&self, path: &Path, bytes: usize) -> io::Result<SharedMap> {
        let inode = self.inode(path, Mode::Write)?;
        let mapped = self.map_part(inode, bytes)?;
        let start = mapped.start();
        // SAFETY: as above.
        Ok(unsafe { SharedMap::new(start, bytes, Arc::new(mapped)) })
    }

    fn boot_id(&self) -> io::Result<[u8; 16]> {
        Ok(Machine::boot_id(self))
    }
}

impl StoreFile for Open {
    fn len(&self) -> io::Result<u64> {
        self.machine.len(self.inode)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64, patience: Patience) -> io::Result<usize> {
        if patience == Patience::Cached && self.machine.delay_us() % 4 == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.machine.read(self.inode, buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.machine.write(self.inode, bytes, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.machine.set_len(self.inode, bytes, false)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.machine.set_len(self.inode, bytes, true)
    }

    fn clear(&self, from: u64, bytes: u64) -> io::Result<()> {
        self.machine.clear(self.inode, from, bytes)
    }

    /// All of it: what was written may be written once more.
    fn unwritten(&self, from: u64) -> io::Result<u64> {
        Ok(from)
    }

    fn sync(&self) -> io::Result<()> {
        self.machine.sync(self.inode)
    }
}

impl Machine {
    /// The disk as the store takes it.
    pub fn files(&self) -> Arc<dyn Files> {
        Arc::new(self.clone())
    }
}
