use std::str::FromStr as _;

use proptest::prelude::*;

use super::*;

const EXAMPLE: &[u8] = include_bytes!("../../../../examples/prices.json");

fn decimal(text: &str) -> Decimal {
    Decimal::from_str(text).unwrap()
}

fn list() -> PriceList {
    PriceList::parse(EXAMPLE).unwrap()
}

fn billed(instance_type: Option<&str>, vcpu: u32, memory_mb: u32, disk_gb: u32) -> Billed {
    let instance_type = instance_type.map(str::to_owned);
    Billed { instance_type, vcpu, memory_mb, disk_gb, gpus: BTreeMap::new() }
}

#[test]
fn the_default_list_has_the_usual_sizes_and_charges_nothing() {
    let list = PriceList::default();
    assert!(list.is_free());
    assert_eq!(list.default_size().unwrap().id, "tdx.small");
    assert_eq!(list.size_of(8, 16384).unwrap().id, "tdx.large");
    assert_eq!(list.size_of(24, 256 * 1024), None, "a size with GPUs is not found by its CPUs");
    assert_eq!(list.rates(&billed(None, 3, 1000, 500)), Rates::default());
    let example: Vec<_> = PriceList::parse(EXAMPLE).unwrap().sizes().iter().map(|s| s.id.clone()).collect();
    assert_eq!(example, list.sizes().iter().map(|s| s.id.clone()).collect::<Vec<_>>());
}

#[test]
fn a_size_costs_its_price_and_anything_else_by_its_parts() {
    let list = list();
    let rates = |one: &Billed| list.rates(one);
    let small = billed(Some("tdx.small"), 2, 4096, 100);
    assert_eq!(rates(&small).compute, decimal("0.058"));
    assert_eq!(rates(&small).storage, decimal("0.0139"), "100 GB cost 0.0139 an hour");
    assert_eq!(rates(&small).total(), decimal("0.0719"));
    // The same without the name, and more under the name.
    assert_eq!(rates(&billed(None, 2, 4096, 100)), rates(&small));
    let larger = rates(&billed(Some("tdx.small"), 64, 4096, 100));
    assert_eq!(larger.compute, decimal("64") * decimal("0.02") + decimal("4") * decimal("0.0045"));
    // A third of a GiB is no decimal fraction.
    assert_eq!(rates(&billed(None, 1, 1000, 20)).compute, decimal("0.024394531"));
}

#[test]
fn gpus_cost_what_their_product_costs() {
    let list = list();
    let mut one = billed(Some("h200.medium"), 48, 512 * 1024, 400);
    one.gpus = [("10de:2335".to_owned(), 2)].into();
    let rates = list.rates(&one);
    assert_eq!((rates.compute, rates.gpu), (Decimal::ZERO, decimal("7")));
    assert_eq!(list.size_rate(list.size("h200.medium").unwrap()), decimal("7"));
    one.gpus = [("10de:2901".to_owned(), 1), ("dead:beef".to_owned(), 3)].into();
    assert_eq!(list.rates(&one).gpu, decimal("3.8") + decimal("15"), "others cost what * costs");
}

fn size(members: &str) -> String {
    with(&format!(r#""sizes": [{{{members}}}]"#))
}

fn with(members: &str) -> String {
    let rest = r#""storage_gb_hour": "0", "vcpu_hour": "0", "memory_gb_hour": "0""#;
    let gpus = if members.contains("gpu_hour") { "" } else { r#", "gpu_hour": {}"# };
    format!("{{{members}, {rest}{gpus}}}")
}

const SMALL: &str =
    r#""id": "a", "name": "A", "vcpu": 1, "memory_mb": 512, "disk_gb": 20, "hourly_rate": "1""#;

#[test]
fn what_cannot_be_meant_is_refused_and_named() {
    let twice = with(&format!(r#""sizes": [{{{SMALL}}}, {{{}}}]"#, SMALL.replace("512", "1024")));
    let same =
        with(&format!(r#""sizes": [{{{SMALL}}}, {{{}}}]"#, SMALL.replace(r#""id": "a""#, r#""id": "b""#)));
    let gpus = |text: &str| size(&format!(r#"{SMALL}, "gpus": {text}"#));
    let hour = |text: &str| with(&format!(r#""sizes": [{{{SMALL}}}], "gpu_hour": {text}"#));
    assert!(PriceList::parse(size(SMALL).as_bytes()).is_ok());
    for (text, words) in [
        (String::new(), "EOF"),
        ("[]".to_owned(), "expected"),
        ("{}".to_owned(), "missing field"),
        (size(SMALL).replace(r#""gpu_hour": {}"#, r#""gpu_hours": {}"#), "unknown field `gpu_hours`"),
        (size(SMALL).replace(r#", "vcpu_hour": "0""#, ""), "missing field `vcpu_hour`"),
        (size(&SMALL.replace("\"1\"", "\"-1\"")), "negative"),
        (size(&SMALL.replace("\"1\"", "1.5")), "written as a string"),
        (size(&SMALL.replace("\"1\"", "\"1000000\"")), "a million or more"),
        (size(&SMALL.replace("\"1\"", "\"0.0000000001\"")), "more than 9 decimals"),
        (size(&SMALL.replace("\"1\"", "\"1e3\"")), "is no price"),
        (size(&SMALL.replace("\"1\"", "\"1_0\"")), "is no price"),
        (size(&SMALL.replace("\"1\"", "\"\"")), "is no price"),
        (size(&SMALL.replace("\"1\"", "\".5\"")), "is no price"),
        (size(&SMALL.replace("\"1\"", "\"١\"")), "is no price"),
        (size(&format!(r#"{SMALL}, "colour": 1"#)), "unknown field `colour`"),
        (size(&SMALL.replace(r#""id": "a""#, r#""id": "A b""#)), "its id is not"),
        (size(&format!(r#"{SMALL}, "family": """#)), "its family is not"),
        (size(&SMALL.replace(r#""name": "A""#, r#""name": " ""#)), "its name is not"),
        (size(&SMALL.replace(r#""vcpu": 1"#, r#""vcpu": 0"#)), "vcpu is not from"),
        (size(&SMALL.replace("512", "99999999")), "memory_mb is not from"),
        (size(&SMALL.replace(r#""disk_gb": 20"#, r#""disk_gb": 1"#)), "disk_gb is not from"),
        (gpus(r#"{"count": 0, "product": "x"}"#), "gpus.count is not from"),
        (gpus(r#"{"count": 1, "product": "H 200"}"#), "gpus.product is not"),
        (gpus(r#"{"count": 1, "product": "10de:2335"}"#), "no size without GPUs"),
        (with(r#""sizes": []"#), "no size without GPUs"),
        (twice, "two sizes a"),
        (same, "sizes a and b have the same"),
        (hour(r#"{"x": "1", "x": "2"}"#), "lists x twice"),
        (hour(r#"{"X Y": "1"}"#), "no GPU product"),
        (hour(r#"["1"]"#), "an object of GPU products"),
        (size(SMALL).replacen('{', r#"{"currency": "dollars", "#, 1), "currency"),
        (" ".repeat(MAX_FILE_BYTES + 1), "bytes"),
    ] {
        let refused = PriceList::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains(words), "{words}: {refused}\n{text:.200}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,200}") {
        let _ = PriceList::parse(text.as_bytes());
        let _ = PriceList::parse(size(&SMALL.replace("\"1\"", &format!("{text:?}"))).as_bytes());
    }

    #[test]
    fn a_price_is_read_exactly(whole in 0_u32..1_000_000, fraction in 0_u32..1_000_000_000) {
        let text = format!("{whole}.{fraction:09}");
        let list = PriceList::parse(size(&SMALL.replace("\"1\"", &format!("{text:?}"))).as_bytes()).unwrap();
        prop_assert_eq!(list.size("a").unwrap().hourly_rate, decimal(&text));
    }

    #[test]
    fn rates_have_no_more_decimals_than_amounts(
        vcpu in 0_u32..2000, memory_mb in 0_u32..(32 << 20), disk_gb in 0_u32..(2 << 20), gpus in 0_u32..32,
    ) {
        let mut one = billed(None, vcpu, memory_mb, disk_gb);
        one.gpus = [("10de:2335".to_owned(), gpus)].into();
        let rates = list().rates(&one);
        for rate in [rates.compute, rates.storage, rates.gpu] {
            prop_assert!(rate >= Decimal::ZERO);
            prop_assert_eq!(rounded(rate), rate);
        }
        prop_assert_eq!(rates.total(), rates.compute + rates.storage + rates.gpu);
    }
}
