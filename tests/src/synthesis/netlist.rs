//! A mapped netlist: its resources, and the depth of the logic between its registers.
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Resources of a block on an UltraScale+ device, and its logic depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Lookup tables, with those used as memory and shift registers.
    pub lut: u32,
    /// Flip-flops (FDRE, FDSE, FDCE, FDPE).
    pub ff: u32,
    /// Block RAMs of 36 Kbit; one of 18 Kbit is half.
    pub bram: f32,
    /// UltraRAMs of 288 Kbit.
    pub uram: u32,
    /// LUT levels between registers; a carry chain counts one, the wide multiplexers of a slice none.
    pub depth: u32,
}

#[derive(Deserialize)]
struct Design {
    modules: HashMap<String, Module>,
}

#[derive(Deserialize)]
struct Module {
    cells: HashMap<String, Cell>,
}

#[derive(Deserialize)]
struct Cell {
    #[serde(rename = "type")]
    kind: String,
    port_directions: HashMap<String, String>,
    connections: HashMap<String, Vec<Bit>>,
}

/// A net by number, or a constant.
#[derive(Deserialize)]
#[serde(untagged)]
enum Bit {
    Net(u32),
    Constant(#[allow(dead_code, reason = "only its being no net matters")] String),
}

/// Role of a cell in a path between registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A lookup table: one level.
    Table,
    /// A slice's multiplexer, or a buffer: no level of its own.
    Free,
    /// A carry chain: one level for the whole chain.
    Carry,
    /// A memory of lookup tables: reading takes one level, writing ends a path.
    TableMemory,
    /// Begins and ends paths.
    Register,
}

/// Kinds of cells: role, LUTs, FFs, half block RAMs, UltraRAMs.
fn meaning(kind: &str) -> Option<(Role, u32, u32, u32, u32)> {
    let tables = |luts| Some((Role::TableMemory, luts, 0, 0, 0));
    match kind {
        "LUT1" | "LUT2" | "LUT3" | "LUT4" | "LUT5" | "LUT6" | "INV" => Some((Role::Table, 1, 0, 0, 0)),
        "MUXF7" | "MUXF8" | "MUXF9" | "BUFG" | "BUF" | "$scopeinfo" => Some((Role::Free, 0, 0, 0, 0)),
        "CARRY4" | "CARRY8" => Some((Role::Carry, 0, 0, 0, 0)),
        "FDRE" | "FDSE" | "FDCE" | "FDPE" => Some((Role::Register, 0, 1, 0, 0)),
        "SRL16E" | "SRLC16E" | "SRLC32E" => Some((Role::Register, 1, 0, 0, 0)),
        "RAMB18E2" => Some((Role::Register, 0, 0, 1, 0)),
        "RAMB36E2" => Some((Role::Register, 0, 0, 2, 0)),
        "URAM288" => Some((Role::Register, 0, 0, 0, 1)),
        "RAM32X1S" | "RAM64X1S" => tables(1),
        "RAM32X1D" | "RAM64X1D" | "RAM128X1S" => tables(2),
        "RAM128X1D" | "RAM256X1S" | "RAM32M" | "RAM64M" => tables(4),
        "RAM32M16" | "RAM64M8" | "RAM256X1D" | "RAM512X1S" => tables(8),
        _ => None,
    }
}

/// Inputs of a memory of lookup tables that select the read data without a clock; all others are sampled at the clock.
fn is_read_address(port: &str) -> bool {
    port.starts_with("DPRA")
        || port.starts_with("ADDR") && !port.starts_with("ADDRH")
        || port.starts_with('A') && !port.starts_with("ADDR")
}

/// The cells of one flattened module.
pub struct Netlist {
    cells: Vec<Cell>,
}

impl Netlist {
    /// Reads what Yosys' `write_json` writes.
    ///
    /// # Errors
    /// If the text is not such a file, or has no such module.
    pub fn parse(text: &str, module: &str) -> Result<Netlist> {
        let mut design: Design = serde_json::from_str(text).context("not a netlist of Yosys")?;
        let module = design.modules.remove(module).with_context(|| format!("the netlist has no {module}"))?;
        Ok(Netlist { cells: module.cells.into_values().collect() })
    }

    /// Counts cells and measures depth.
    ///
    /// # Errors
    /// If a cell is of an unknown kind, or there is a combinational loop.
    pub fn figures(&self) -> Result<Figures> {
        let mut figures = Figures { depth: self.depth()?, ..Figures::default() };
        for cell in &self.cells {
            let (_, lut, ff, half_bram, uram) = cell_meaning(cell)?;
            figures.lut += lut;
            figures.ff += ff;
            figures.bram += half_bram as f32 / 2.0;
            figures.uram += uram;
        }
        Ok(figures)
    }

    /// The longest path between registers, in levels: the level of a net is known once those of its cell's inputs are.
    fn depth(&self) -> Result<u32> {
        // For each cell: the inputs that its outputs follow at once, and how many of them are still unsettled.
        let mut unsettled = vec![0usize; self.cells.len()];
        let mut readers: HashMap<u32, Vec<usize>> = HashMap::new();
        let mut is_driven_at_once: HashMap<u32, bool> = HashMap::new();
        for cell in &self.cells {
            let (role, ..) = cell_meaning(cell)?;
            for net in nets(cell, "output", |_| true) {
                is_driven_at_once.insert(net, role != Role::Register);
            }
        }
        for (index, cell) in self.cells.iter().enumerate() {
            for net in at_once(cell)? {
                if is_driven_at_once.get(&net).copied().unwrap_or(false) {
                    unsettled[index] += 1;
                    readers.entry(net).or_default().push(index);
                }
            }
        }
        let mut carries: HashMap<u32, bool> = HashMap::new();
        let mut level: HashMap<u32, u32> = HashMap::new();
        let mut ready: Vec<usize> = (0..self.cells.len()).filter(|&index| unsettled[index] == 0).collect();
        let mut settled = 0;
        while let Some(index) = ready.pop() {
            settled += 1;
            let cell = &self.cells[index];
            let (role, ..) = cell_meaning(cell)?;
            if role == Role::Register {
                continue;
            }
            let own = match role {
                Role::Table | Role::TableMemory | Role::Carry => 1,
                Role::Free | Role::Register => 0,
            };
            // Within a carry chain the level was paid for where the chain was entered.
            let arrival = |net: &u32| {
                let chained = role == Role::Carry && carries.get(net).copied().unwrap_or(false);
                level.get(net).copied().unwrap_or(0) + if chained { 0 } else { own }
            };
            let reached = at_once(cell)?.iter().map(arrival).max().unwrap_or(own);
            for net in nets(cell, "output", |_| true) {
                level.insert(net, reached);
                carries.insert(net, role == Role::Carry);
                for &reader in readers.get(&net).into_iter().flatten() {
                    unsettled[reader] -= 1;
                    if unsettled[reader] == 0 {
                        ready.push(reader);
                    }
                }
            }
        }
        if settled != self.cells.len() {
            bail!("{} cells are in a combinational loop or driven by one", self.cells.len() - settled);
        }
        Ok(level.into_values().max().unwrap_or(0))
    }
}

fn cell_meaning(cell: &Cell) -> Result<(Role, u32, u32, u32, u32)> {
    meaning(&cell.kind).with_context(|| format!("cells of kind {} are not known to the report", cell.kind))
}

/// Inputs of a cell from which a combinational path leads to its outputs.
fn at_once(cell: &Cell) -> Result<Vec<u32>> {
    let (role, ..) = cell_meaning(cell)?;
    Ok(match role {
        // An SRL's address selects its tap at once, but it is constant wherever Yosys infers one.
        Role::Register => Vec::new(),
        Role::TableMemory => nets(cell, "input", is_read_address),
        _ => nets(cell, "input", |_| true),
    })
}

fn nets(cell: &Cell, direction: &str, wanted: impl Fn(&str) -> bool) -> Vec<u32> {
    let ports = cell.connections.iter().filter(|(port, _)| {
        cell.port_directions.get(*port).is_some_and(|found| found == direction) && wanted(port)
    });
    ports
        .flat_map(|(_, bits)| bits)
        .filter_map(|bit| match bit {
            Bit::Net(net) => Some(*net),
            Bit::Constant(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ports and the nets on them.
    type Ports = &'static [(&'static str, u32)];

    /// A netlist of cells given as (kind, inputs, outputs).
    fn netlist(cells: &[(&str, Ports, Ports)]) -> Netlist {
        let cells = cells.iter().map(|(kind, inputs, outputs)| {
            let directions = |ports: &[(&str, u32)], direction: &str| {
                ports.iter().map(|(port, _)| (port.to_string(), direction.to_string())).collect::<Vec<_>>()
            };
            let connections =
                inputs.iter().chain(*outputs).map(|(port, net)| (port.to_string(), vec![Bit::Net(*net)]));
            Cell {
                kind: kind.to_string(),
                port_directions: directions(inputs, "input")
                    .into_iter()
                    .chain(directions(outputs, "output"))
                    .collect(),
                connections: connections.collect(),
            }
        });
        Netlist { cells: cells.collect() }
    }

    #[test]
    fn tables_between_registers_are_levels() {
        let chain = netlist(&[
            ("FDRE", &[("D", 9)], &[("Q", 1)]),
            ("LUT2", &[("I0", 1), ("I1", 1)], &[("O", 2)]),
            ("LUT1", &[("I0", 2)], &[("O", 3)]),
            ("MUXF7", &[("I0", 3)], &[("O", 4)]),
            ("FDRE", &[("D", 4)], &[("Q", 5)]),
        ]);
        let figures = chain.figures().unwrap();
        assert_eq!((figures.depth, figures.lut, figures.ff), (2, 2, 2));
    }

    #[test]
    fn a_carry_chain_is_one_level() {
        let chain = netlist(&[
            ("LUT1", &[("I0", 1)], &[("O", 2)]),
            ("CARRY4", &[("S", 2)], &[("CO", 3)]),
            ("CARRY4", &[("CI", 3)], &[("CO", 4)]),
            ("CARRY4", &[("CI", 4)], &[("O", 5)]),
            ("LUT1", &[("I0", 5)], &[("O", 6)]),
        ]);
        assert_eq!(chain.figures().unwrap().depth, 3);
    }

    #[test]
    fn writing_a_table_memory_ends_a_path_and_reading_it_is_a_level() {
        let memory = netlist(&[
            ("LUT1", &[("I0", 1)], &[("O", 2)]),
            ("LUT1", &[("I0", 2)], &[("O", 3)]),
            ("RAM32X1D", &[("D", 3), ("DPRA0", 9)], &[("DPO", 4)]),
        ]);
        let figures = memory.figures().unwrap();
        assert_eq!((figures.depth, figures.lut), (2, 4));
    }

    #[test]
    fn block_rams_count_in_units_of_36_kbit() {
        let memory = netlist(&[("RAMB18E2", &[], &[]), ("RAMB36E2", &[], &[]), ("URAM288", &[], &[])]);
        let figures = memory.figures().unwrap();
        assert_eq!((figures.bram, figures.uram), (1.5, 1));
    }

    #[test]
    fn an_unknown_cell_and_a_loop_are_errors() {
        assert!(netlist(&[("DSP48E2", &[], &[])]).figures().unwrap_err().to_string().contains("DSP48E2"));
        let ring = netlist(&[("LUT1", &[("I0", 1)], &[("O", 2)]), ("LUT1", &[("I0", 2)], &[("O", 1)])]);
        assert!(ring.figures().unwrap_err().to_string().contains("loop"));
    }
}
