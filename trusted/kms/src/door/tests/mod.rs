mod admin;
mod callers;
mod chain;
mod floods;
pub(crate) mod lab;
mod machine;
mod owners;
mod releases;
mod requests;
