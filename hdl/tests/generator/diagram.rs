//! Draws `docs/card.svg`: the blocks of the card, and the streams between them as its Verilog has them. Only the places of the boxes
//! are chosen here.
use rnic_hdl::config::Config;
use rnic_hdl::generator;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// A box of the drawing, the instances that it stands for, and its place.
struct Block {
    title: &'static str,
    instances: &'static [&'static str],
    column: f64,
    row: f64,
}

const BLOCKS: [Block; 16] = [
    block("control", &["control"], 0.0, 0.2),
    block("bus master gate", &["bus_master_gate"], 0.0, 2.0),
    block("host reader", &["host_reader"], 1.0, 0.2),
    block("completions, events", &["complete"], 1.0, 2.0),
    block("host writer", &["host_writer", "write_failures"], 1.0, 3.2),
    block("regions", &["requester_region_mux", "requester_regions"], 2.0, -0.4),
    block("requester", &["requester"], 2.1, 0.85),
    block("responder", &["responder"], 1.95, 1.9),
    block("regions", &["responder_regions"], 2.0, 3.8),
    block("gather", &["gather_mux", "gather"], 3.0, 0.2),
    block("place", &["place_mux", "place"], 3.0, 3.2),
    block("address vector", &["address_vector"], 4.0, 0.2),
    block("receive", &["receive"], 4.0, 3.2),
    block("assemble", &["assemble"], 5.0, 0.2),
    block("to the MAC", &["exit", "mac_transmit"], 6.0, 0.2),
    block("from the MAC", &["mac_receive", "entry"], 6.0, 3.2),
];
const fn block(title: &'static str, instances: &'static [&'static str], column: f64, row: f64) -> Block {
    Block { title, instances, column, row }
}

/// Instances without a stream to another one.
const NOT_DRAWN: [&str; 3] = ["drained", "counters", "pool_levels"];
/// The block whose streams are a dot in the box at their other end, as it writes to most of them.
const CONTROL: usize = 0;

/// Size of a box, distance of boxes, and margin, in pixels.
const BOX: (f64, f64) = (146.0, 44.0);
const PITCH: (f64, f64) = (186.0, 104.0);
const MARGIN: (f64, f64) = (16.0, 60.0);
const PICTURE: (u32, u32) = (1294, 512);
/// Half of the distance between the arrows of two blocks that have streams both ways.
const LANE: f64 = 5.0;

impl Block {
    fn centre(&self) -> (f64, f64) {
        (MARGIN.0 + self.column * PITCH.0 + BOX.0 / 2.0, MARGIN.1 + self.row * PITCH.1 + BOX.1 / 2.0)
    }
}

/// Names and ports of the instances in the last module of a text, each port with what is connected to it.
fn instances(verilog: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
    let top = verilog.rfind("\nmodule ").expect("there is a module");
    let mut found: Vec<(&str, Vec<_>)> = Vec::new();
    for line in verilog[top..].lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(" (").and_then(|line| line.split_once(' ')) {
            found.push((name.1.trim_end_matches("_instance"), Vec::new()));
        } else if let Some((port, wire)) = line.strip_prefix('.').and_then(|line| line.split_once('(')) {
            let (_, ports) = found.last_mut().expect("ports belong to an instance");
            ports.push((port, wire.trim_end_matches([',', ')'])));
        }
    }
    // The header of the module itself.
    found.retain(|(_, ports)| !ports.is_empty());
    found
}

/// The streams from block to block, each with its ports at the second one.
fn streams(verilog: &str) -> BTreeMap<(usize, usize), Vec<String>> {
    let instances = instances(verilog);
    let block_of = |name: &str| BLOCKS.iter().position(|block| block.instances.contains(&name));
    for (name, _) in &instances {
        assert!(block_of(name).is_some() || NOT_DRAWN.contains(name), "{name} has no place in the drawing");
    }
    let mut streams = BTreeMap::<_, Vec<String>>::new();
    for (name, ports) in &instances {
        let Some(to) = block_of(name) else { continue };
        for (port, wire) in ports {
            let Some(port) = port.strip_suffix("_valid") else { continue };
            let drives = |source: &&str| wire.strip_prefix(*source).is_some_and(|rest| rest.starts_with('_'));
            let source =
                instances.iter().map(|(source, _)| *source).filter(drives).max_by_key(|source| source.len());
            if let Some(from) = source.and_then(block_of).filter(|from| *from != to) {
                streams.entry((from, to)).or_default().push(port.to_string());
            }
        }
    }
    streams
}

/// Where a line between the centres of two boxes crosses the border of the first.
fn border((x, y): (f64, f64), (to_x, to_y): (f64, f64)) -> (f64, f64) {
    let (dx, dy) = (to_x - x, to_y - y);
    let part = (BOX.0 / 2.0 / dx.abs()).min(BOX.1 / 2.0 / dy.abs());
    (x + part * dx, y + part * dy)
}

fn drawing(verilog: &str) -> String {
    let streams = streams(verilog);
    let (width, height) = PICTURE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
         <path d=\"M0 0 8 4 0 8z\" fill=\"#446\"/></marker></defs>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (&(from, to), ports) in streams.iter().filter(|((from, to), _)| *from != CONTROL && *to != CONTROL) {
        let (from_centre, to_centre) = (BLOCKS[from].centre(), BLOCKS[to].centre());
        let ((x1, y1), (x2, y2)) = (border(from_centre, to_centre), border(to_centre, from_centre));
        let length = (x2 - x1).hypot(y2 - y1);
        let lane = if streams.contains_key(&(to, from)) { LANE / length } else { 0.0 };
        let (dx, dy) = ((y1 - y2) * lane, (x2 - x1) * lane);
        writeln!(
            svg,
            "<path d=\"M{:.0} {:.0} {:.0} {:.0}\" stroke=\"#446\" stroke-width=\"1.3\" marker-end=\"url(#head)\">\
             <title>{} to {}: {}</title></path>",
            x1 + dx,
            y1 + dy,
            x2 + dx,
            y2 + dy,
            BLOCKS[from].title,
            BLOCKS[to].title,
            ports.join(", "),
        )
        .expect("a String takes any text");
    }
    for (place, block) in BLOCKS.iter().enumerate() {
        let (x, y) = block.centre();
        let (left, top) = (x - BOX.0 / 2.0, y - BOX.1 / 2.0);
        let is_set_up = streams.contains_key(&(CONTROL, place));
        let dot = format!("<circle cx=\"{:.0}\" cy=\"{:.0}\" r=\"4\" fill=\"#446\"/>", left + 9.0, top + 9.0);
        writeln!(
            svg,
            "<rect x=\"{left:.0}\" y=\"{top:.0}\" width=\"{}\" height=\"{}\" rx=\"5\" fill=\"#eef3fb\" stroke=\"#446\"/>\
             <text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>{}",
            BOX.0,
            BOX.1,
            y + 5.0,
            block.title,
            if is_set_up { &dot } else { "" },
        )
        .expect("a String takes any text");
    }
    svg + "</svg>\n"
}

#[test]
fn the_picture_shows_the_streams_of_the_card() {
    let product = generator::generate(&Config::preset(512).unwrap()).unwrap();
    let found = drawing(&product.verilog);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/card.svg");
    if std::env::var_os("RNIC_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let drawn = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == drawn,
        "docs/card.svg is out of date: RNIC_BLESS=1 cargo test -p rnic-hdl --test generator"
    );
}
