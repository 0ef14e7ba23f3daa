//! What becomes of a record: it is taken, or refused.

#![forbid(unsafe_code)]

use std::cell::Cell;

/// The record goes the reference's way.
#[derive(Debug)]
pub struct Refused;
pub type Read<T> = Result<T, Refused>;

/// The cells that a record may still fill with the elements of its lists and maps. The first cell of an element does not
/// count: the element's own bytes pay for it.
#[derive(Default)]
pub struct Cells(Cell<usize>);

impl Cells {
    /// A record begins, which may fill so many.
    pub fn start(&self, most: usize) {
        self.0.set(most);
    }

    pub fn left(&self) -> usize {
        self.0.get()
    }

    #[inline]
    pub fn take(&self, of_element: usize) -> Read<()> {
        self.0.set(self.0.get().checked_sub(of_element - 1).ok_or(Refused)?);
        Ok(())
    }
}
