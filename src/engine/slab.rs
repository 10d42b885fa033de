//! A list with holes: members keep their place, and places are used again.

/// Members by their places.
pub struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new() -> Slab<T> {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds what `make` makes for the place that it is told.
    pub fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("fewer than 2^32 members")
        });
        self.places[place as usize] = Some(make(place));
        place
    }

    pub fn get(&self, place: u32) -> Option<&T> {
        self.places.get(place as usize)?.as_ref()
    }

    pub fn remove(&mut self, place: u32) -> Option<T> {
        let member = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(member)
    }

    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }
}

/// For places known to have a member.
impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, place: u32) -> &T {
        self.get(place).expect("the place has a member")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, place: u32) -> &mut T {
        let member = self.places[place as usize].as_mut();
        member.expect("the place has a member")
    }
}
