// InboxGate: which messages a stage may act on.
//
//     attempt < current                                               Stale: changes nothing
//     attempt == current                                              Current
//     attempt > current, or an unknown request                        Early: held
//
// A request's attempts only ever grow, so old and early can be told apart. Its id says nothing: a
// stage that was started again may hear of a newer request before a further turn of an older one.
// Begin comes from the conductor, hot messages from other stages, so a wave may overtake the
// Begin it belongs to: it is held (bounded) and handled when the Begin has come.
//
//     [unknown] -- begun() --> [runs] -- ended() --> [over] -- begun(), next attempt --> [runs]
//       ^   |                    |  ^                 ^  |
//       |   |   await_again()    v  | begun(), same   |  |  more than kOverMax are over, and this one
//       |   |                  [again] attempt        |  |  has been so for longest
//       |   +----------- stopped(), before its Begin -+  |
//       +------------------------------------------------+
//
// A Stop that overtakes its Begin is not held: the attempt is over, and its Begin is no news. So a stage
// that was paused while many requests came and went holds none of them.
// What else may be early in bulk, where a stage is behind with its cold messages:
//   proposals     hints: kHintsMax of them are held, and the newest count
//   waves         not held here: they wait in the segment's queue, each with a tensor slot of the segment
//                 before, which stops when it has none left
//   verdicts, to a draft      the oldest are dropped (Overflow)
//   verdicts, to a segment    none: the rows that they are about have been through this segment, which
//                             needed the Begin for that. kHeldMax allows for that reasoning to be wrong; more
//                             are the fault of a last segment that answers what was never asked.
// What runs is never forgotten, however many other requests come and go meanwhile.
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

class InboxGate {
public:
    static constexpr std::size_t kHeldMax = 128;
    static constexpr std::size_t kHintsMax = kHeldMax / 2;  // of one kind that may be lost
    static constexpr std::size_t kOverMax = 4096;  // requests that are over and still known

    struct Held {
        StageId from;
        std::uint16_t kind = 0;
        msg::Route route;
        std::vector<std::byte> bytes;
    };

    /// What follows when too many messages are early. A draft's Begin brings all that was committed
    /// by then, so the verdicts that have waited longest are the ones it can do without; a segment
    /// can do without none.
    enum class Overflow : std::uint8_t { Refuse, DropOldest };

    explicit InboxGate(Overflow overflow = Overflow::Refuse) : overflow_{overflow} {}

    /// Whether a Begin is to be followed: not one as old as what is known, or older.
    [[nodiscard]] bool is_news(RequestId request, Attempt attempt) const;
    void begun(RequestId request, Attempt attempt);
    /// Its Begin is to come once more: until then it is news, and what belongs to it is early.
    void await_again(RequestId request);
    /// `attempt` and all before it are over, whether it has begun or not. Of an older one than is known:
    /// nothing happens.
    void stopped(RequestId request, Attempt attempt);
    /// The attempt that was begun last is over; unknown or over already: nothing happens.
    void ended(RequestId request);
    void all_ended();

    /// What to do with a message; an Early one has been copied. Errors: Protocol, of its sender, when
    /// too much is held already and none may be dropped.
    Result<Age> admit(StageId from,
                      std::uint16_t kind,
                      const msg::Route& route,
                      std::span<const std::byte> bytes);
    /// As admit(), for a kind that may be lost: an Early one takes the place of what its sender
    /// said of that request before, and the oldest go when there are too many.
    Age admit_hint(StageId from,
                   std::uint16_t kind,
                   const msg::Route& route,
                   std::span<const std::byte> bytes);
    /// As admit(), but nothing is held: an Early one is the caller's to keep.
    [[nodiscard]] Age peek(const msg::Route& route) const;
    /// What `peer` sent and is held is of no use any more: its channel, and with it the tensors
    /// that its messages name, is gone.
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
