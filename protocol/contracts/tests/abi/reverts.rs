use alloy_sol_types::{Panic, Revert, SolError as _};
use cloister_contracts::abi::Owned::{InvalidInitialization, OwnableUnauthorizedAccount};
use cloister_contracts::{Address, revert_reason};
use proptest::prelude::*;

#[test]
fn reasons_are_said_in_words() {
    let stranger = Address::repeat_byte(9);
    for (data, words) in [
        (Vec::new(), "no reason"),
        (Revert::from("the compose hash must not be zero").abi_encode(), "the compose hash must not be zero"),
        (Panic::from(0x11).abi_encode(), "failed"),
        (OwnableUnauthorizedAccount { account: stranger }.abi_encode(), "is not the owner"),
        (InvalidInitialization {}.abi_encode(), "initialised already"),
        (vec![1, 2, 3, 4], "not known"),
        (vec![0; 100_000], "too long"),
    ] {
        let reason = revert_reason(&data);
        assert!(reason.contains(words), "{reason}");
    }
}

proptest! {
    #[test]
    fn any_data_gives_a_short_printable_reason(
        data in prop::collection::vec(any::<u8>(), 0..300), words in ".{0,300}", is_text in any::<bool>()
    ) {
        let data = if is_text { Revert::from(words).abi_encode() } else { data };
        let reason = revert_reason(&data);
        prop_assert!(reason.chars().count() <= 250 && !reason.contains(char::is_control));
    }
}
