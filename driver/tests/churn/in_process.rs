//! Clients in this process, on a simulated card. Their peer has another card of the same world, which is open all the time.
//!
//! A client that is dropped gives back all at once. One that is forgotten keeps what it has until the card is closed, as the
//! kernel closes it when a process ends.

use crate::audit::{InUse, addresses, fill};
use crate::side::{Invitation, Object, Side};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{Device, Function, Options, QueuePair};
use rnic_machine::function::{SharedWorld, SimulatedFunction, lock};
use std::mem::forget;
use std::sync::Arc;
use std::time::Duration;

/// Clients between two times that their card is opened.
const CLIENTS_OF_AN_OPEN_CARD: usize = 25;
/// Clients from which on a run ends with tables that are filled wholly.
const CLIENTS_OF_A_FULL_CHECK: usize = 1000;
/// Most calls of `idle` between the post of a client's transfers and its end, in which all of them may complete.
const IDLE_MAX: u32 = 100;
/// Bound of each wait, in simulated time: a message takes some microseconds.
const PATIENCE: Duration = Duration::from_millis(1);
/// First device address of a simulated host.
const FIRST_ADDRESS: u64 = 1 << 32;

/// How a client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// All of its objects are dropped, in any order.
    Dropped,
    /// None is dropped.
    Forgotten,
    /// Some are dropped.
    Partly,
    /// All but the object of this kind are dropped, which must be found. No client of a run ends like this.
    Leaking(&'static str),
}

const DEATHS: [(Death, u32); 3] = [(Death::Dropped, 3), (Death::Forgotten, 1), (Death::Partly, 1)];

/// Ends objects in any order.
fn end(mut objects: Vec<Object>, death: Death, random: &mut ChaCha8Rng) {
    objects.shuffle(random);
    for (kind, object) in objects {
        let is_forgotten = match death {
            Death::Dropped => false,
            Death::Forgotten => true,
            Death::Partly => random.random(),
            Death::Leaking(leaked) => kind == leaked,
        };
        if is_forgotten { forget(object) } else { drop(object) }
    }
}

/// Opens a card.
pub(crate) fn open(world: &SharedWorld, card: usize) -> Result<(Arc<SimulatedFunction>, Device)> {
    let function = Arc::new(SimulatedFunction::new(Arc::clone(world), card));
    let end = card as u8 + 1;
    let options = Options { seed: Some(end.into()), ..Options::new([2, 0, 0, 0, 0, end]) };
    let device = Device::open(Arc::clone(&function) as Arc<dyn Function>, options)?;
    Ok((function, device))
}

/// What happened to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Clients of each way to end.
    pub(crate) deaths: [usize; 3],
    /// Clients that ended with requests in flight.
    pub(crate) in_flight: usize,
    /// Times that the card of the clients was opened.
    pub(crate) opened: usize,
}

/// The clients' card and their peer.
pub(crate) struct Clients {
    world: SharedWorld,
    random: ChaCha8Rng,
    peer: Side,
    /// What the peer has in use while there is no client.
    peer_base: InUse,
    /// Most bytes that the peer had mapped at once.
    mapped_max: u64,
    pub(crate) counts: Counts,
}

impl Clients {
    pub(crate) fn new(world: SharedWorld, random: ChaCha8Rng) -> Result<Self> {
        let (_, device) = open(&world, 1)?;
        let peer = Side::new(&device, true, PATIENCE)?;
        let peer_base = InUse::of(&device, &world, 1);
        Ok(Self { world, random, peer, peer_base, mapped_max: 0, counts: Counts::default() })
    }

    /// Makes a client, and lets it and the peer exchange a greeting.
    fn client(
        &mut self,
        device: &Device,
        salt: u64,
        has_srq: bool,
    ) -> Result<(Side, [QueuePair<ReadyToSend>; 2], [Invitation; 2])> {
        let client = Side::new(device, has_srq, PATIENCE)?;
        let sides = [&client, &self.peer];
        let queue_pairs = [client.queue_pair()?, self.peer.queue_pair()?];
        let invitations = [client.invitation(&queue_pairs[0])?, self.peer.invitation(&queue_pairs[1])?];
        let [own, peer] = queue_pairs;
        let mut queue_pairs =
            [client.connect(own, &invitations[1])?, self.peer.connect(peer, &invitations[0])?];
        let salts = [salt, salt + 1];
        let invited = [&invitations[1], &invitations[0]];
        for ((side, queue_pair), (peer, salt)) in
            sides.iter().zip(&mut queue_pairs).zip(invited.into_iter().zip(salts))
        {
            side.greet(queue_pair, peer, salt)?;
        }
        for (end, side) in sides.iter().enumerate() {
            side.expect_greeting(salts[end], salts[1 - end]).with_context(|| format!("end {end}"))?;
        }
        Ok((client, queue_pairs, invitations))
    }

    /// One client from its first object to its end.
    pub(crate) fn live_and_die(&mut self, device: &Device, death: Death, salt: u64) -> Result<()> {
        let before = InUse::of(device, &self.world, 0);
        let has_srq = matches!(death, Death::Leaking(_)) || self.random.random();
        let (client, mut queue_pairs, invitations) = self.client(device, salt, has_srq)?;
        client.transfer(&mut queue_pairs[0], &invitations[1], &mut self.random)?;
        self.peer.transfer(&mut queue_pairs[1], &invitations[0], &mut self.random)?;
        let mut completions = Vec::new();
        for _ in 0..self.random.random_range(0..IDLE_MAX) {
            completions.extend(client.poll()?);
        }
        let [own, of_peer] = queue_pairs;
        self.counts.in_flight += usize::from(own.in_flight().0 != 0);
        if let Some(place) = DEATHS.iter().position(|(kind, _)| *kind == death) {
            self.counts.deaths[place] += 1;
        }
        let alive = InUse::of(device, &self.world, 0);
        let (end_address, mapped) = addresses(&self.world, 1);
        self.mapped_max = self.mapped_max.max(mapped);
        let is_reused = end_address <= FIRST_ADDRESS + 2 * self.mapped_max;
        ensure!(is_reused, "device addresses up to {end_address:#x} for {} bytes", self.mapped_max);
        let mut objects = client.into_objects();
        objects.push(("queue pairs", Box::new(own)));
        objects.push(("completions", Box::new(completions)));
        end(objects, death, &mut self.random);
        let after = InUse::of(device, &self.world, 0);
        drop(of_peer);
        self.peer.settle()?;
        match death {
            Death::Dropped | Death::Leaking(_) => after.same_as(&before),
            Death::Forgotten => after.same_as(&alive),
            Death::Partly => after.between(&before, &alive),
        }
        .context("the card of the clients")?;
        InUse::of(&self.peer.device, &self.world, 1)
            .same_as(&self.peer_base)
            .context("the card of the peer")?;
        device.check()?;
        lock(&self.world).check()?;
        Ok(())
    }

    /// Opens the card, runs some clients, and closes it.
    fn open_run_close(&mut self, clients: usize, is_last: bool) -> Result<()> {
        let (function, device) = open(&self.world, 0)?;
        self.counts.opened += 1;
        for _ in 0..clients {
            let salt = 2 * self.counts.deaths.iter().sum::<usize>() as u64;
            let death = DEATHS.choose_weighted(&mut self.random, |(_, weight)| *weight)?.0;
            self.live_and_die(&device, death, salt)
                .with_context(|| format!("client {}, {death:?}", salt / 2))?;
        }
        if is_last {
            self.check_end(&device)?;
        }
        // The device of a process that forgets everything is not dropped either.
        if self.random.random() {
            forget(device)
        } else {
            drop(device)
        }
        function.close()?;
        let mappings = lock(&self.world).host(0).memory().mappings().len();
        ensure!(mappings == 0, "{mappings} mappings are left of a card that is closed");
        ensure!(function.config_space().is_err(), "a function that is closed can be used");
        Ok(())
    }

    /// All places of the tables can be used again, and all receives of the peer's SRQ are on its card.
    fn check_end(&mut self, device: &Device) -> Result<()> {
        // A whole table takes a minute.
        let most =
            if self.counts.deaths.iter().sum::<usize>() < CLIENTS_OF_A_FULL_CHECK { 64 } else { u32::MAX };
        fill(device, most).context("the card of the clients")?;
        fill(&self.peer.device, most).context("the card of the peer")?;
        let (client, mut queue_pairs, _) = self.client(device, u64::from(u32::MAX), true)?;
        client.send_to_all_receives(&mut queue_pairs[0])?;
        self.peer.expect_all_receives()?;
        drop((queue_pairs, client));
        self.peer.settle()
    }

    /// Loses a receive of the peer's SRQ. Returns what the checks after a client, and that of all receives, say of it.
    pub(crate) fn lose_receive(&mut self, device: &Device) -> Result<[Result<()>; 2]> {
        let (client, mut queue_pairs, _) = self.client(device, 1000, true)?;
        self.peer.lose_receive(&client, &mut queue_pairs[0])?;
        let settled = self.peer.settle();
        client.send_to_all_receives(&mut queue_pairs[0])?;
        Ok([settled, self.peer.expect_all_receives()])
    }

    /// Runs this many clients.
    pub(crate) fn run(&mut self, clients: usize) -> Result<()> {
        let mut left = clients;
        while left != 0 {
            let now = left.min(CLIENTS_OF_AN_OPEN_CARD);
            left -= now;
            self.open_run_close(now, left == 0)?;
            if (clients - left).is_multiple_of(40 * CLIENTS_OF_AN_OPEN_CARD) {
                println!("  {} clients: {:?}", clients - left, self.counts);
            }
        }
        Ok(())
    }
}
