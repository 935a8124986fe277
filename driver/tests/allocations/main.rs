//! Posting and polling allocate nothing: a million of each, over a card that completes at once.
//!
//! The counters are those of the whole process, so this is a program without the harness of the tests, whose own thread allocates
//! when it begins to wait for a test, and when one takes long.

#[cfg(not(loom))]
mod counted;

#[cfg(not(loom))]
fn main() {
    counted::a_million_posts_and_polls_allocate_nothing();
    println!("a million posts and polls of each kind allocate nothing");
}

#[cfg(loom)]
fn main() {}
