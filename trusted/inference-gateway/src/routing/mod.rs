//! Which routes a request may take, and in which order they are tried.

mod breaker;
mod catalogue;
mod speed;
#[cfg(test)]
mod tests;

pub use breaker::{Breaker, Health};
pub use catalogue::{Catalogue, Model, Route, Wish};
pub use speed::Speed;
