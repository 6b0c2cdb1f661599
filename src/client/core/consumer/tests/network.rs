//! What happens between clients and brokers, in the order of the simulated clock.

use super::*;

impl World {
    /// Requests on one connection do not overtake each other.
    fn hop_to(&mut self, client: usize, broker: usize) -> u64 {
        let hop = self.hop();
        let last = self.arrivals.entry((client, broker)).or_default();
        *last = (*last).max(self.now + hop);
        *last - self.now
    }

    /// Does what a client wants done.
    pub fn drain(&mut self, client: usize) {
        for effect in self.clients[client].consumer.take_effects() {
            self.effect(client, effect);
        }
    }

    fn effect(&mut self, client: usize, effect: Effect) {
        match effect {
            Effect::Ask {
                call,
                to,
                request,
                timeout_ms,
            } => {
                *self.requests.entry(request.fixed.code).or_default() += 1;
                let failed = Error::new(ErrorKind::Timeout {
                    limit_ms: timeout_ms,
                });
                self.at(
                    timeout_ms,
                    Event::Answer {
                        client,
                        call,
                        answer: Err(failed),
                    },
                );
                if let Some(broker) = self.target(&to) {
                    if !self.dice.chance(self.faults.lost) {
                        let hop = self.hop_to(client, broker);
                        self.at(
                            hop,
                            Event::Request {
                                client,
                                broker,
                                call,
                                request,
                                one_way: false,
                            },
                        );
                    }
                }
            }
            Effect::Tell { to, request } => {
                if let Some(broker) = self.target(&to) {
                    let hop = self.hop_to(client, broker);
                    self.at(
                        hop,
                        Event::Request {
                            client,
                            broker,
                            call: 0,
                            request,
                            one_way: true,
                        },
                    );
                }
            }
            Effect::Send { call, outgoing } => {
                let hop = self.hop();
                self.at(
                    hop,
                    Event::Send {
                        client,
                        call,
                        outgoing,
                    },
                );
            }
            Effect::Deliver(batch) => self.deliver(client, batch),
            Effect::Heartbeat => {
                self.clients[client].heartbeats += 1;
                for broker in 0..self.brokers.len() {
                    let hop = self.hop();
                    self.at(hop, Event::Heartbeat { client, broker });
                }
            }
            Effect::Route(topic) => {
                let hop = self.hop();
                self.at(hop, Event::Route { client, topic });
            }
            Effect::LoadOffsets { file } => {
                let result = Ok(self.files.get(&file).cloned());
                self.at(1, Event::Loaded { client, result });
            }
            Effect::StoreOffsets { file, content } => {
                let result = if self.full_disk {
                    let why = "no space left on device".to_owned();
                    Err(FileFault { path: file, why })
                } else {
                    self.files.insert(file, content);
                    Ok(())
                };
                self.at(1, Event::Stored { client, result });
            }
            Effect::Done { ticket, result } => {
                let before = self.clients[client].done.insert(ticket, result);
                assert!(before.is_none(), "{ticket:?} is done twice");
            }
            Effect::Respond { response, .. } => self.clients[client].responses.push(response),
            Effect::Notice(Notice::Fault(error)) => self.clients[client].faults.push(error),
            Effect::Notice(Notice::Assigned { topic, mine, .. }) => {
                self.clients[client].assigned.insert(topic, mine);
            }
            Effect::Failed(error) => {
                self.clients[client].faults.push(error);
                self.clients[client].alive = false;
            }
            Effect::Stopped { lost } => {
                self.clients[client].lost = lost;
                self.clients[client].stopped = true;
                self.clients[client].alive = false;
                self.at(1, Event::Gone { client });
            }
        }
    }

    fn target(&mut self, to: &Target) -> Option<usize> {
        match to {
            Target::Broker { name, .. } => self.brokers.iter().position(|b| b.name == *name),
            Target::AnyOf(topic) => {
                let has = |broker: &Broker| broker.queues.keys().any(|(name, _)| **name == **topic);
                let having: Vec<_> = (0..self.brokers.len())
                    .filter(|&b| has(&self.brokers[b]))
                    .collect();
                let count = having.len() as u64;
                (count > 0).then(|| having[self.dice.below(count) as usize])
            }
        }
    }

    fn deliver(&mut self, client: usize, batch: Batch) {
        assert!(!batch.messages.is_empty());
        let rules = self.clients[client].consumer.rules().clone();
        assert!(batch.messages.len() <= rules.batch_max);
        if rules.kind == Kind::Orderly && !rules.broadcast {
            let queue = &batch.queue;
            let broker = self
                .brokers
                .iter()
                .find(|b| b.name == queue.broker_name)
                .unwrap();
            let owner = broker.lock_owner(GROUP, &queue.topic, queue.queue_id, self.now);
            let me = &self.clients[client].id;
            assert_eq!(owner, Some(&**me), "{queue} is delivered without its lock");
            for other in self.clients.iter().filter(|other| other.alive) {
                let busy = other.in_hand.values().any(|batch| batch.queue == *queue);
                assert!(!busy, "{queue} is in hand at {} already", other.id);
            }
            let first = batch.messages[0].queue_offset;
            let last = self.last_delivered.get(queue).copied().unwrap_or(-1);
            if self.strict_order {
                assert!(first > last, "{queue}: {first} after {last}");
            }
            let last = batch.messages.last().unwrap().queue_offset;
            self.last_delivered.insert(queue.clone(), last);
        }
        if let Some(outcome) = (self.listener)(&mut self.dice, &batch) {
            let work = self.work_ms.0 + self.dice.below(self.work_ms.1.max(1));
            let delivery = batch.delivery;
            self.at(
                work,
                Event::Done {
                    client,
                    delivery,
                    outcome,
                },
            );
        }
        self.clients[client].in_hand.insert(batch.delivery, batch);
    }

    /// A listener is done with a batch.
    pub fn finish(&mut self, client: usize, delivery: DeliveryId, outcome: Outcome) {
        let Some(batch) = self.clients[client].in_hand.remove(&delivery) else {
            return;
        };
        let good = match &outcome {
            Outcome::Success {
                ack_index: Some(index),
            } => index + 1,
            Outcome::Success { .. } | Outcome::Commit | Outcome::SuccessUncommitted => usize::MAX,
            _ => 0,
        };
        for message in batch.messages.iter().take(good) {
            *self
                .ledger
                .consumed
                .entry(message.body().to_vec())
                .or_default() += 1;
        }
        let now = self.now;
        self.clients[client]
            .consumer
            .consumed(now, delivery, outcome);
        self.drain(client);
    }

    /// Answers pulls that were held.
    pub fn wake(&mut self, broker: usize) {
        let now = self.now;
        let (mut kept, mut answers) = (Vec::new(), Vec::new());
        for held in std::mem::take(&mut self.brokers[broker].held) {
            let answer = self.brokers[broker].pull(&held.request);
            if answer.code == 19 && held.until > now {
                kept.push(held);
            } else {
                answers.push((held.client, held.call, answer));
            }
        }
        self.brokers[broker].held = kept;
        for (client, call, answer) in answers {
            self.answer(client, call, answer);
        }
    }

    fn answer(&mut self, client: usize, call: u64, mut answer: Response) {
        if self.dice.chance(self.faults.unanswered) {
            return;
        }
        if self.dice.chance(self.faults.garbage) {
            answer = match self.dice.below(3) {
                0 => Response::body(&b"garbage"[..]),
                1 => Response::error(1, "nonsense"),
                _ => Response::ok(),
            };
        }
        let mut delay = self.hop();
        if self.dice.chance(self.faults.late) {
            delay += self.dice.below(40_000);
        }
        if self.dice.chance(self.faults.twice) {
            let answer = Ok(answer.clone());
            self.at(
                delay + 5,
                Event::Answer {
                    client,
                    call,
                    answer,
                },
            );
        }
        self.at(
            delay,
            Event::Answer {
                client,
                call,
                answer: Ok(answer),
            },
        );
    }

    /// Lets `ms` pass.
    pub fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        loop {
            let event = self.events.first_key_value().map(|(&(at, _), _)| at);
            let wakes = self.clients.iter().filter(|client| client.alive);
            let wake = wakes.filter_map(|client| client.consumer.next_wake()).min();
            let held = self
                .brokers
                .iter()
                .flat_map(|b| b.held.iter().map(|h| h.until))
                .min();
            let delayed = self
                .brokers
                .iter()
                .flat_map(|b| b.delayed.iter().map(|d| d.0))
                .min();
            let next = [event, wake, held, delayed].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            let now = self.now;
            if event == Some(next) {
                let (_, event) = self.events.pop_first().unwrap();
                self.handle(event);
            } else if held == Some(next) {
                (0..self.brokers.len()).for_each(|broker| self.wake(broker));
            } else if delayed == Some(next) {
                self.release_delayed();
            } else {
                for client in 0..self.clients.len() {
                    if self.clients[client].alive {
                        self.clients[client].consumer.tick(now);
                        let next = self.clients[client].consumer.next_wake();
                        assert!(next.is_none_or(|next| next > now), "a tick leaves work");
                        self.drain(client);
                    }
                }
            }
            self.check_bounds();
        }
        self.now = end;
    }

    fn check_bounds(&self) {
        for client in self.clients.iter().filter(|client| client.alive) {
            let consumer = &client.consumer;
            let rules = consumer.rules();
            let most = rules.thresholds.messages + rules.pull_batch as usize;
            let total: usize = consumer.owned.values().map(|own| own.line.count()).sum();
            assert_eq!(total, consumer.held());
            for (queue, own) in &consumer.owned {
                assert!(own.line.count() <= most, "{queue}: {}", own.line.count());
            }
            assert!(client.in_hand.len() <= 2 * rules.in_hand_max());
            assert!(
                consumer.timers.len() <= 50 + 20 * consumer.owned.len(),
                "timers pile up"
            );
        }
    }

    fn release_delayed(&mut self) {
        let now = self.now;
        for broker in 0..self.brokers.len() {
            let delayed = std::mem::take(&mut self.brokers[broker].delayed);
            let (due, rest) = delayed.into_iter().partition(|entry| entry.0 <= now);
            self.brokers[broker].delayed = rest;
            let due: Vec<super::broker::Delayed> = due;
            for (_, topic, times, body, properties) in due {
                self.brokers[broker].add_topic(&topic, 1);
                self.brokers[broker].put(&topic, 0, times, &body, &properties);
            }
            self.wake(broker);
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Request {
                client,
                broker,
                call,
                request,
                one_way,
            } => {
                let ledger = &mut self.ledger;
                let answer = self.brokers[broker].answer(now, client, call, &request, ledger);
                if let (Some(answer), false) = (answer, one_way) {
                    self.answer(client, call, answer);
                }
            }
            Event::Answer {
                client,
                call,
                answer,
            } => {
                if self.clients[client].alive {
                    self.clients[client].consumer.answered(now, call, answer);
                    self.drain(client);
                }
            }
            Event::Send {
                client,
                call,
                outgoing,
            } => {
                let broker = self.dice.below(self.brokers.len() as u64) as usize;
                if self.brokers[broker].refuse_back {
                    let answer = Response::error(14, "full");
                    self.at(
                        1,
                        Event::Answer {
                            client,
                            call,
                            answer: Ok(answer),
                        },
                    );
                } else {
                    self.brokers[broker].send(now, &outgoing, &mut self.ledger);
                    self.at(
                        1,
                        Event::Answer {
                            client,
                            call,
                            answer: Ok(Response::ok()),
                        },
                    );
                }
            }
            Event::Heartbeat { client, broker } => {
                if self.clients[client].alive {
                    let id = self.clients[client].id.clone();
                    let ignores = self.brokers[broker].ignores_members;
                    let members = self.brokers[broker]
                        .members
                        .entry(GROUP.to_owned())
                        .or_default();
                    if !ignores && members.insert(id) {
                        self.notify(broker);
                    }
                    self.at(1, Event::Heard { client });
                }
            }
            Event::Heard { client } => {
                if self.clients[client].alive {
                    self.clients[client].consumer.announced(now);
                    self.drain(client);
                }
            }
            Event::Notify { client } => {
                if self.clients[client].alive {
                    self.clients[client].consumer.members_changed(now);
                    self.drain(client);
                }
            }
            Event::Done {
                client,
                delivery,
                outcome,
            } => {
                if self.clients[client].alive {
                    self.finish(client, delivery, outcome);
                }
            }
            Event::Route { client, topic } => self.route(client, &topic),
            Event::Stored { client, result } => {
                self.clients[client].consumer.offsets_stored(now, result);
                self.drain(client);
            }
            Event::Loaded { client, result } => {
                self.clients[client].consumer.offsets_loaded(now, result);
                self.drain(client);
            }
            Event::Gone { client } => {
                let id = self.clients[client].id.clone();
                for broker in 0..self.brokers.len() {
                    if self.brokers[broker].forget(GROUP, &id) {
                        self.notify(broker);
                    }
                    self.brokers[broker]
                        .held
                        .retain(|held| held.client != client);
                }
            }
        }
    }

    fn notify(&mut self, broker: usize) {
        let members = self.brokers[broker]
            .members
            .get(GROUP)
            .cloned()
            .unwrap_or_default();
        for client in 0..self.clients.len() {
            if self.clients[client].alive && members.contains(&self.clients[client].id) {
                let hop = self.hop();
                self.at(hop, Event::Notify { client });
            }
        }
    }
}
