//! A list with holes: members keep their index, and free indices are used again. The list
//! itself never shrinks: of what the most members at a time have taken, a hundredth stays.
//!
//! An ordered map would do the same and take as much memory. But every command
//! looks up its connection and its tube several times, and a reserve looks up
//! each tube that is watched. Here that is an index and no search, which makes
//! commands of many clients, and a reserve that watches many tubes, much
//! faster.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops;

/// An index into one kind of list: the index of a tube and that of a connection
/// are different types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index<Kind>(pub u32, PhantomData<Kind>);

impl<Kind> Index<Kind> {
    pub const fn new(index: u32) -> Index<Kind> {
        Index(index, PhantomData)
    }
}

/// Where a tube is among those that exist.
pub type TubeIndex = Index<OfTubes>;
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfTubes;

/// Where a connection is among those that are open.
pub type ConnectionIndex = Index<OfConnections>;
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfConnections;

/// Members by their indices, and by their numbers, of which none is given twice.
#[derive(Default)]
pub struct Slab<Kind, T> {
    members: Vec<Option<Box<T>>>,
    free: Vec<Index<Kind>>,
    by_id: BTreeMap<u64, Index<Kind>>,
    /// How many members there have been: the number of the latest one.
    pub total: u64,
}

impl<Kind: Copy + Ord, T> Slab<Kind, T> {
    /// Adds the member that is made of its number.
    pub fn insert(&mut self, make: impl FnOnce(u64) -> T) -> Index<Kind> {
        self.total += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.members.push(None);
            let last = u32::try_from(self.members.len() - 1);
            Index::new(last.expect("fewer than 2^32 members"))
        });
        self.members[index.0 as usize] = Some(Box::new(make(self.total)));
        self.by_id.insert(self.total, index);
        index
    }

    /// The index of the member with this number.
    pub fn find(&self, id: u64) -> Option<Index<Kind>> {
        self.by_id.get(&id).copied()
    }

    /// The members with this number or a higher one, in their order.
    pub fn from(&self, id: u64) -> impl Iterator<Item = (u64, &T)> {
        let members = self.by_id.range(id..);
        members.map(|(&id, &index)| (id, &self[index]))
    }

    pub fn get(&self, index: Index<Kind>) -> Option<&T> {
        self.members.get(index.0 as usize)?.as_deref()
    }

    pub fn remove(&mut self, id: u64) -> Option<Box<T>> {
        let index = self.by_id.remove(&id)?;
        let member = self.members[index.0 as usize].take()?;
        self.free.push(index);
        Some(member)
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }
}

/// Panics if the index has no member.
impl<Kind: Copy + Ord, T> ops::Index<Index<Kind>> for Slab<Kind, T> {
    type Output = T;

    fn index(&self, index: Index<Kind>) -> &T {
        self.get(index).expect("the index has a member")
    }
}

impl<Kind: Copy + Ord, T> ops::IndexMut<Index<Kind>> for Slab<Kind, T> {
    fn index_mut(&mut self, index: Index<Kind>) -> &mut T {
        let member = self.members[index.0 as usize].as_deref_mut();
        member.expect("the index has a member")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_used_again_when_it_is_free() {
        let mut slab = Slab::<OfTubes, u32>::default();
        let mut insert = || slab.insert(|id| id as u32);
        let indices: Vec<TubeIndex> = (0..900).map(|_| insert()).collect();
        assert_eq!(slab.remove(8), Some(Box::new(8)));
        assert_eq!(slab.remove(4), Some(Box::new(4)));
        assert!(slab.get(indices[3]).is_none());
        let [first, second] = [(); 2].map(|()| slab.insert(|id| id as u32));
        assert_eq!([first, second], [indices[3], indices[7]]);
        assert_eq!((slab.len(), slab[indices[7]]), (900, 902));
        let ids: Vec<u64> = slab.from(899).map(|(id, _)| id).collect();
        assert_eq!(ids, [899, 900, 901, 902]);
        for id in slab.from(0).map(|(id, _)| id).collect::<Vec<_>>() {
            assert!(slab.remove(id).is_some() && slab.find(id).is_none());
        }
        assert_eq!((slab.len(), slab.members.len()), (0, 900));
    }
}
