//! The table of connections: who has a slot in it, who has hung up, and how connections
//! end.
//!
//! # Clients that have hung up and are still there
//!
//! Usually it takes some microseconds until the worker of such a client has read the end of
//! the stream, and the client has left the engine. Meanwhile its jobs are reserved, and it is
//! in lists and statistics. So an answer that says 'nothing is there', and each list and
//! statistic, is given after those clients have left that had closed before it was asked for.
//!
//! But **nobody waits for a worker that waits for its own client**: to take more replies, or,
//! when the client has left the engine, to receive the last of them. And nobody waits longer
//! than [`LEAVES_WITHIN`] for one that has asked for much, or whose disk is slow.

use super::LOOKS_EVERY;
use super::outbox::Client;
use super::shared::{Guarded, Shared};
use super::stream::Stream;
use super::system::CLOSING;
use crate::engine::{ConnectionId, Time};
use crate::log::{self, Level};
use crate::sync::{Ordering, thread};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How many workers stay idle, at most.
const IDLE: usize = 32;

/// How long others wait for a client after it was found to have hung up for the first time.
/// Where all processors are busy, its worker may wait for one for some milliseconds.
const LEAVES_WITHIN: Duration = Duration::from_millis(10);

/// Clients that have hung up, each with the time until which others wait for it to leave. (One
/// that stays for longer costs those that ask nothing.)
pub type Leaving = Vec<(ConnectionId, Time, Weak<Client>)>;

impl Shared {
    /// Adds a connection.
    ///
    /// # Errors
    ///
    /// If there are too many connections already: returns the stream.
    pub fn connect(&self, stream: Stream) -> Result<Arc<Client>, Stream> {
        self.take_slot(stream).or_else(|stream| {
            // A client that comes right after another one has closed finds its slot free.
            self.leavers(None);
            self.take_slot(stream)
        })
    }

    fn take_slot(&self, stream: Stream) -> Result<Arc<Client>, Stream> {
        let peer = stream.peer();
        // Held until the connection is in the list of hang-ups, too: a client that asks for
        // those that leave has to find it in both.
        let _leaving = self.leaving.lock().expect("no thread panics");
        let client = self.with_lock(|state, now| {
            // Some of those that have hung up hold no slot any more: their sockets close soon.
            if state.clients.len() - state.hung_up.min(CLOSING) >= self.limits.max_connections {
                return Err(stream);
            }
            let id = state.engine.connect(peer.clone(), now);
            let (binlog, timeout) = (self.binlog.clone(), self.limits.idle_timeout);
            let client = Arc::new(Client::new(stream, peer, id, binlog, timeout));
            state.clients.insert(id, Arc::clone(&client));
            Ok(client)
        })?;
        if let Err(error) = self.hangups.add(&client.stream.0, client.id.0) {
            let text = "only its worker will notice that it hangs up";
            log::client_warning(&client.peer, format_args!("{text}: {error}"));
        }
        Ok(client)
    }

    /// The clients that have hung up, each with the time until which this asker
    /// [waits](Self::await_leavers) for it to leave.
    ///
    /// An asker that has hung up itself waits only for those that have come before it: so
    /// no two clients wait for each other.
    pub fn leavers(&self, asker: Option<&Client>) -> Vec<(Time, Weak<Client>)> {
        let mut leaving = self.leaving.lock().expect("no thread panics");
        let found = self.hangups.take();
        if !found.is_empty() {
            self.with_lock(|state, now| {
                for id in found.into_iter().map(ConnectionId) {
                    // Only the first time counts.
                    if let Some(client) = state.clients.get(&id)
                        && !client.has_hung_up.swap(true, Ordering::Relaxed)
                    {
                        state.hung_up += 1;
                        leaving.push((id, now + LEAVES_WITHIN, Arc::downgrade(client)));
                    }
                }
            });
        }
        let now = self.clock.now();
        let stays = |client: Arc<Client>| !client.delays_its_worker();
        leaving.retain(|(_, until, client)| *until > now && client.upgrade().is_some_and(stays));
        let asker = asker.filter(|asker| asker.has_hung_up.load(Ordering::Relaxed));
        let leavers = leaving
            .iter()
            .filter(|(id, ..)| asker.is_none_or(|asker| *id < asker.id));
        leavers
            .map(|(_, until, client)| (*until, Weak::clone(client)))
            .collect()
    }

    /// Waits until these clients have left, or nobody waits for them any longer.
    pub fn await_leavers(&self, leavers: Vec<(Time, Weak<Client>)>) {
        for (until, client) in leavers {
            if let Some(client) = client.upgrade() {
                client.await_leaving(until.since(self.clock.now()));
            }
        }
    }

    /// Ends the waiting of clients that have hung up.
    pub fn end_waits_of_hung_up(&self) {
        for id in self.hangups_in_reserve.take().into_iter().map(ConnectionId) {
            // One that watches very many tubes is in a queue of each.
            self.with_lock(|state, _| state.engine.half_close(id));
        }
    }

    /// Shuts the socket of a client, for another one. Its own worker finds the end of the
    /// stream, and disconnects it when what it has read is executed; or, if it waits in a
    /// `reserve`, the hang-up ends that.
    pub fn close(&self, id: ConnectionId, by: &Client) {
        let found = self.with_lock(|state, _| state.clients.get(&id).cloned());
        // It may have left just now.
        if let Some(client) = found {
            let text = format_args!("closes connection {}, {}", id.0, client.peer);
            by.log(Level::Info, text);
            client.stream.close();
        }
    }

    /// Removes a connection, and makes its jobs ready again. While the server
    /// stops, they stay reserved: otherwise another client would be given a job
    /// that this one may still be working on. They are ready after a restart.
    pub fn disconnect(&self, id: ConnectionId) {
        // Very many may leave together, and each time slice needs disk space.
        let slice = |state: &mut Guarded, now| {
            let has_space = !self.has_binlog_backpressure();
            self.is_stopping() || has_space && state.engine.disconnect(id, now)
        };
        // One time slice is enough for nearly every connection. One that has held
        // very many jobs lets others go first before each further slice.
        let mut is_over = self.with_lock(slice);
        while !is_over {
            self.await_disk_space();
            is_over = self.with_lock_last(slice);
        }
    }

    /// Frees the slot of a client that is disconnected and was sent all, right before its
    /// socket is closed: when the client sees that, it may connect again at once. Returns
    /// whether its worker, if it has one, is idle now; if not, that ends.
    pub fn leave(&self, client: &Client, has_worker: bool) -> bool {
        self.with_lock(|state, _| {
            state.clients.remove(&client.id);
            state.hung_up -= usize::from(client.has_hung_up.load(Ordering::Relaxed));
            let is_idle = has_worker && state.idle_workers < IDLE;
            state.idle_workers += usize::from(is_idle);
            is_idle
        })
    }

    /// Blocks until all sockets of clients are closed, or for `timeout`. Returns
    /// whether they are. It polls, since this happens once in the server's life.
    pub fn await_all_closed(&self, timeout: Duration) -> bool {
        let until = self.clock.now() + timeout;
        let are_all = || self.with_lock(|state, _| state.clients.is_empty());
        while !are_all() && self.clock.now() < until {
            thread::park_timeout(LOOKS_EVERY);
        }
        are_all()
    }

    /// Makes all workers finish what they have read, and close. Clients that
    /// wait for a job get none, and nothing more is read from any client.
    pub fn stop(&self) {
        // The flag comes first: a worker that reads just before its client is
        // stopped sees the flag before it reads again.
        self.stopping.store(true, Ordering::Relaxed);
        for client in self.clients() {
            client.stop();
        }
        self.wake_timer();
    }

    /// Closes the connections of clients that do not read their replies.
    pub fn abandon(&self) {
        for client in self.clients() {
            client.stream.close();
        }
    }

    pub fn clients(&self) -> Vec<Arc<Client>> {
        self.with_lock(|state, _| state.clients.values().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Engine};
    use crate::protocol::{Body, JobId, Reply};
    use crate::server::{Clock, Limits};
    use std::io::IoSlice;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    fn shared() -> Shared {
        let clock = Clock::start();
        let engine = Engine::new(Config::new(100), clock.now());
        let limits = Limits {
            max_connections: 10,
            ..Limits::of_one_client(100)
        };
        Shared::new(engine, None, clock, limits).unwrap()
    }

    fn connect(shared: &Shared) -> (Arc<Client>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let client = shared.connect(Stream(ours.into()));
        (client.ok().expect("a free slot"), theirs)
    }

    /// However busy the machine is, they are not late.
    fn leavers(shared: &Shared, asker: &Client) -> Vec<ConnectionId> {
        shared.leavers(None);
        for (_, until, _) in shared.leaving.lock().unwrap().iter_mut() {
            *until = *until + Duration::from_secs(3600);
        }
        let leavers = shared.leavers(Some(asker)).into_iter();
        leavers.map(|(_, it)| it.upgrade().unwrap().id).collect()
    }

    #[test]
    fn an_asker_waits_for_clients_that_have_hung_up_and_are_still_there() {
        let shared = &shared();
        let [asker, first, second, stays] = [(); 4].map(|()| connect(shared));
        drop((first.1, second.1));
        assert_eq!(leavers(shared, &asker.0), [first.0.id, second.0.id]);
        second.0.end();
        // Another asker has found it first, and this one waits, too.
        assert_eq!(leavers(shared, &stays.0), [first.0.id]);
        thread::scope(|threads| {
            let awaited = shared.leavers(Some(&asker.0));
            threads.spawn(|| shared.await_leavers(awaited));
            first.0.end();
        });
        assert_eq!(leavers(shared, &asker.0), []);
    }

    #[test]
    fn clients_that_have_hung_up_do_not_wait_for_themselves_nor_for_each_other() {
        let shared = &shared();
        let [first, second, third] = [(); 3].map(|()| connect(shared));
        drop((first.1, second.1));
        assert_eq!(leavers(shared, &first.0), []);
        assert_eq!(leavers(shared, &second.0), [first.0.id]);
        assert_eq!(leavers(shared, &third.0), [first.0.id, second.0.id]);
    }

    /// Otherwise it could be over before anybody waits.
    #[test]
    fn the_time_to_leave_begins_when_a_client_is_found_in_the_table() {
        let shared = &shared();
        let [asker, leaver] = [(); 2].map(|()| connect(shared));
        drop(leaver.1);
        thread::scope(|threads| {
            let (asks, released_at) = shared.with_lock(|_, _| {
                let asks = threads.spawn(|| shared.leavers(Some(&asker.0)));
                while !shared.is_awaited() {
                    thread::yield_now();
                }
                let until = shared.clock.now() + LEAVES_WITHIN;
                while shared.clock.now() <= until {
                    thread::yield_now();
                }
                (asks, until)
            });
            let leavers = asks.join().unwrap();
            assert!(leavers[0].0 > released_at);
        });
    }

    /// Has the worker of a client wait until the client reads its replies, and the client
    /// half-close.
    fn read_nothing_and_half_close(client: &(Arc<Client>, UnixStream)) {
        client.1.shutdown(Shutdown::Write).unwrap();
        let body = Body::new(&vec![b'x'; 1 << 20]);
        client.0.post(&mut vec![Reply::Found(JobId(1), body)], None);
        let worker = Arc::clone(&client.0);
        thread::spawn(move || worker.flush());
        while !client.0.delays_its_worker() {
            thread::yield_now();
        }
    }

    #[test]
    fn nobody_waits_for_a_client_whose_worker_waits_for_it() {
        let shared = &shared();
        let [asker, deaf, lingers] = [(); 3].map(|()| connect(shared));
        read_nothing_and_half_close(&deaf);
        lingers.0.end();
        drop(lingers.1);
        assert_eq!(leavers(shared, &asker.0), []);
        // It hangs up once more.
        deaf.1.shutdown(Shutdown::Write).unwrap();
        assert_eq!(leavers(shared, &asker.0), []);
        // However many there are, they cost those that ask nothing.
        assert!(shared.leaving.lock().unwrap().is_empty());
        deaf.0.stream.close();
    }

    #[test]
    fn nobody_goes_on_waiting_for_a_client_that_turns_out_to_read_nothing() {
        let shared = &shared();
        let [asker, deaf] = [(); 2].map(|()| connect(shared));
        deaf.1.shutdown(Shutdown::Write).unwrap();
        assert_eq!(leavers(shared, &asker.0), [deaf.0.id]);
        let awaited = shared.leavers(Some(&asker.0));
        thread::scope(|threads| {
            threads.spawn(|| shared.await_leavers(awaited));
            read_nothing_and_half_close(&deaf);
        });
        // Nor later, though its time is not over.
        assert_eq!(leavers(shared, &asker.0), []);
        deaf.0.stream.close();
    }

    #[test]
    fn a_client_that_has_closed_with_replies_unread_is_awaited() {
        let shared = &shared();
        let [asker, closes] = [(); 2].map(|()| connect(shared));
        let (client, theirs) = &closes;
        let mut filled = 0;
        while let sent @ 1.. = client.stream.try_write(&[IoSlice::new(b"x")]).unwrap() {
            filled += sent;
        }
        assert!(filled > 0);
        client.post(&mut vec![Reply::TimedOut], None);
        theirs.shutdown(Shutdown::Both).unwrap();
        assert_eq!(leavers(shared, &asker.0), [client.id]);
        client.flush().unwrap_err();
        assert_eq!(leavers(shared, &asker.0), [client.id]);
        client.end();
        assert_eq!(leavers(shared, &asker.0), []);
    }

    /// A script asks, quits, reads all, closes, and the next one comes.
    #[test]
    fn the_slot_of_a_client_that_has_left_and_closed_is_free() {
        let shared = &shared();
        let clients = [(); 10].map(|()| connect(shared));
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(shared.connect(Stream(ours.into())).is_err());
        let [first, ..] = clients;
        shared.disconnect(first.0.id);
        first.0.end();
        drop(first.1);
        connect(shared);
    }

    /// It may have asked for much, or the disk may hang.
    #[test]
    fn nobody_waits_long_for_a_client_that_does_not_leave() {
        let shared = &shared();
        let [asker, leaver] = [(); 2].map(|()| connect(shared));
        drop(leaver.1);
        let leavers = shared.leavers(Some(&asker.0));
        assert!(!leavers.is_empty());
        shared.await_leavers(leavers);
        assert!(shared.leavers(Some(&asker.0)).is_empty());
    }
}
