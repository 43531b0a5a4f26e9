//! The catalogue and the signatures, through the public interface.
#![cfg(test)]

mod catalogue;
mod independent;
mod page;
mod secrets;
mod signatures;
mod validator;
