//! Which fields objects have, and in what order: their shapes, told apart while the objects are read.

#![forbid(unsafe_code)]

use crate::outcome::{Read, Refused};

/// An object ends.
pub const END: i32 = -1;
/// Nothing stands where objects could: a null, or a list without items.
pub const NOTHING: i32 = -2;
/// Records of one shape become one array; of more shapes than these most arrays would be small.
const MOST: usize = 256;

/// The records of one shape: the fields by their places, with `END` behind those of an object in a field, and `NOTHING`
/// in its stead. Where objects are not read whole: the numbers of the tracked fields that they lack.
pub struct Shape {
    pub steps: Vec<i32>,
    pub rows: Vec<i32>,
}

/// A tree whose paths are shapes.
pub struct Shapes {
    nodes: Vec<Node>,
    at: usize,
    found: Vec<(usize, Vec<i32>)>,
}

#[derive(Default)]
struct Node {
    above: usize,
    step: i32,
    below: Vec<(i32, usize)>,
    shape: Option<usize>,
}

impl Shapes {
    pub fn new() -> Shapes {
        Shapes { nodes: vec![Node::default()], at: 0, found: vec![] }
    }

    /// A record begins.
    pub fn begin(&mut self) {
        self.at = 0;
    }

    #[inline]
    pub fn step(&mut self, step: i32) {
        let known = self.nodes[self.at].below.iter().find(|below| below.0 == step);
        self.at = match known {
            Some(&(_, node)) => node,
            None => self.add(step),
        };
    }

    fn add(&mut self, step: i32) -> usize {
        let node = self.nodes.len();
        self.nodes[self.at].below.push((step, node));
        self.nodes.push(Node { above: self.at, step, ..Node::default() });
        node
    }

    /// Where the record is.
    pub fn here(&self) -> usize {
        self.at
    }

    /// Back to where it was.
    pub fn back(&mut self, node: usize) {
        self.at = node;
    }

    /// The record ends, and is this row.
    pub fn end(&mut self, row: usize) -> Read<()> {
        let row = i32::try_from(row).map_err(|_| Refused)?;
        let shape = match self.nodes[self.at].shape {
            Some(shape) => shape,
            None if self.found.len() == MOST => return Err(Refused),
            None => {
                self.found.push((self.at, vec![]));
                *self.nodes[self.at].shape.insert(self.found.len() - 1)
            }
        };
        self.found[shape].1.push(row);
        Ok(())
    }

    pub fn finish(self) -> Vec<Shape> {
        let Shapes { nodes, found, .. } = self;
        let steps = |mut at: usize| {
            let mut steps = vec![];
            while at > 0 {
                steps.push(nodes[at].step);
                at = nodes[at].above;
            }
            steps.reverse();
            steps
        };
        found.into_iter().map(|(at, rows)| Shape { steps: steps(at), rows }).collect()
    }
}
