//! The command as people and programs use it: the real program against a scripted server.
#![cfg(test)]

mod accounts;
mod chain;
mod change;
mod commands;
mod costs;
mod deploy;
mod endpoint;
mod environment;
mod failures;
mod gateways;
mod guest;
mod help;
mod inference;
mod kms;
mod login;
mod owners;
mod receipts;
mod serve;
mod support;
mod up;
mod up_inference;
mod update;
mod verify;
mod webhooks;
