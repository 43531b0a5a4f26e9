//! The verifier through its public interface: published vectors at their documented times, evidence minted
//! for the test, and both of them damaged.

#![cfg(test)]

mod collateral;
mod damage;
mod minted;
mod nitro;
mod policy;
mod roots;
mod snp;
mod support;
mod vectors;
