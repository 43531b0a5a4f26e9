mod admin;
mod callers;
mod floods;
pub(crate) mod lab;
mod machine;
mod owners;
mod releases;
mod requests;
