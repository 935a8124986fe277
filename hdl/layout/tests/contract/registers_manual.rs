//! Compares the committed register manual with the tables.

use std::fs;
use std::path::Path;

#[test]
fn the_register_manual_is_fresh() {
    let mut rendered = String::new();
    rnic_layout::render::manual(&mut rendered).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("REGISTERS.md");
    if std::env::var_os("RNIC_BLESS").is_some() {
        fs::write(&path, &rendered).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    if committed != rendered {
        let line = committed.lines().zip(rendered.lines()).take_while(|(old, new)| old == new).count() + 1;
        panic!(
            "hdl/layout/REGISTERS.md differs from the tables, from line {line} on; render it again with\n\
             \n    RNIC_BLESS=1 cargo test -p rnic-layout --test contract\n\
             \nand review the difference: a layout that drivers rely on may have changed"
        );
    }
}

#[test]
fn every_link_of_the_manual_has_its_heading() {
    let mut rendered = String::new();
    rnic_layout::render::manual(&mut rendered).unwrap();
    let anchor = |heading: &str| heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    let headings: Vec<String> = rendered.lines().filter(|line| line.starts_with('#')).map(anchor).collect();
    let links = rendered.split("](#").skip(1).filter_map(|rest| rest.split(')').next());
    let mut count = 0;
    for link in links {
        assert!(headings.contains(&link.to_lowercase()), "no heading for {link}");
        count += 1;
    }
    assert!(count > 50, "only {count} links found");
}

#[test]
fn no_heading_occurs_twice() {
    let mut rendered = String::new();
    rnic_layout::render::manual(&mut rendered).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for line in rendered.lines().filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        assert!(seen.insert(heading.clone()), "a link to {heading} would have two ends");
    }
}
