//! The lock of the allocator, which no thread that is gone may keep from the others.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::scope;

use rillm_cpu_team::Lock;

#[test]
fn one_works_at_a_time() {
    let (lock, count) = (Lock::new(), AtomicU32::new(0));
    scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..1000 {
                    // Not one step: another thread between both would lose a count.
                    let add = || count.store(count.load(Relaxed) + 1, Relaxed);
                    while lock.with(u32::MAX, add).is_none() {}
                }
            });
        }
    });
    assert_eq!(count.load(Relaxed), 4000);
}

#[test]
fn whoever_holds_it_for_good_hangs_nobody() {
    let lock = Lock::new();
    let inner = lock.with(0, || lock.with(1000, || ()));
    assert_eq!(inner, Some(None));
    assert_eq!(lock.with(0, || 3), Some(3), "it is free again");
}
