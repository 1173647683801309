// AttemptFilter: which messages a stage may act on.
//
//     attempt < current                                               Stale: changes nothing
//     attempt == current                                              Current
//     attempt > current, or an unknown request                        Early: held
//
// A request's attempts only grow, so stale and early messages can be told apart. Ids are not
// ordered in time: a restarted stage may get a newer request before a further turn of an older one.
// Begin comes from the conductor, data messages from other stages, so a batch may overtake the
// Begin it belongs to: it is held (bounded) and handled after the Begin.
//
//     [unknown] -- begun() --> [runs] -- ended() --> [over] -- begun(), next attempt --> [runs]
//       ^   |                    |  ^                 ^  |
//       |   |   await_again()    v  | begun(), same   |  |  more than kOverMax are over,
//       |   |                  [again] attempt        |  |  and this one for longest
//       |   +----------- stopped(), before its Begin -+  |
//       +------------------------------------------------+
//
// A Stop that overtakes its Begin is not held: the attempt is over, and its Begin will be ignored.
// So a stage that was paused while many requests came and went holds none of them.
// Messages that may be early in large numbers when a stage is behind with its control messages:
//   proposals     hints: kHintsMax of them are held, and the newest count
//   batches       not held here: they wait in the segment's queue, each with a tensor slot of the
//                 segment before, which stops when it has none left
//   verdicts, to a draft      the oldest are dropped (Overflow)
//   verdicts, to a segment    none: their rows have passed through this segment, which needed the
//                             Begin for that. kHeldMax is a second line of defence; more than that
//                             are the fault of the last segment.
// A running request is never forgotten, however many others begin and end meanwhile.
// Threads: the actor's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

enum class Age : std::uint8_t { Stale, Current, Early };

class AttemptFilter {
public:
    static constexpr std::size_t kHeldMax = 256;
    // Of one kind that may be lost: one for each request that can run. A draft has three such kinds
    // (Proposal, Price, OwnTokens), which leave room for its verdicts.
    static constexpr std::size_t kHintsMax = kHeldMax / 4;
    static constexpr std::size_t kOverMax = 4096;  // requests that are over and still known

    struct Held {
        StageId from;
        std::uint16_t kind = 0;
        msg::Route route;
        std::vector<std::byte> bytes;
    };

    /// What happens when too many messages are early. A draft's Begin has all tokens that were
    /// committed by then, so the oldest held verdicts can be dropped; a segment needs every
    /// verdict.
    enum class Overflow : std::uint8_t { Refuse, DropOldest };

    explicit AttemptFilter(Overflow overflow = Overflow::Refuse) : overflow_{overflow} {}

    /// Whether a Begin is to be handled: its attempt is later than the one that is known.
    [[nodiscard]] bool is_news(RequestId request, Attempt attempt) const;
    void begun(RequestId request, Attempt attempt);
    /// Its Begin is expected again: until it comes, the request's messages are early.
    void await_again(RequestId request);
    /// `attempt` and all before it are over, whether it has begun or not. Of an older one than is
    /// known: nothing happens.
    void stopped(RequestId request, Attempt attempt);
    /// The attempt that was begun last is over; unknown or over already: nothing happens.
    void ended(RequestId request);
    void all_ended();

    /// What to do with a message; an Early one has been copied. Errors: Protocol, of its sender,
    /// when too much is held already and none may be dropped.
    Result<Age> admit(StageId from,
                      std::uint16_t kind,
                      const msg::Route& route,
                      std::span<const std::byte> bytes);
    /// As admit(), for a kind that may be lost: an Early one replaces the sender's earlier one of
    /// that request, and the oldest are dropped when there are too many.
    Age admit_hint(StageId from,
                   std::uint16_t kind,
                   const msg::Route& route,
                   std::span<const std::byte> bytes);
    /// As admit(), but an Early message is not held: the caller keeps it.
    [[nodiscard]] Age peek(const msg::Route& route) const;
    /// Drops the held messages of `peer`: its channel is closed, and the tensors that they name are
    /// gone.
    void forget(StageId peer);
    /// Held messages that are not early any more, in the order in which they came.
    [[nodiscard]] std::vector<Held> take_due();

    /// What a message is by its request and attempt alone.
    [[nodiscard]] Age age(RequestId request, Attempt attempt) const;

private:
    struct Known {
        Attempt attempt;
        bool over = false;
    };
    void forget_oldest();

    Overflow overflow_;
    std::map<RequestId, Known> known_;
    std::deque<RequestId> over_;  // of them, the one that is over for longest is the first
    std::vector<Held> held_;
};

}  // namespace paceline
