// Recovery: the state machine that decides what to do when stages fail. Pure: events and times in,
// commands out. The supervisor executes the commands on processes, the simulation on simulated
// ones.
//
// One stage process:
//
//               Spawn                greeted: Join             ready and all rewired: Joined
//   [Resting] ---------> [Loading] --------------> [Wiring] --------------------------> [Up]
//       ^   back-off         |                        |                                  |
//       |                    |  suspect: Kill         |  suspect: Unwire, Kill           |
//       |                    v                        v                                  |
//       +---- gone ------- [Dying] <----------------------------------------------------+
//       |                                    suspect (hung, corrupt, silent): Lost, Unwire, Kill
//       +---- gone without suspicion: Lost, Unwire
//       |
//       +---- too many deaths in too little work, hopeless, or OnDeath::StopRun
//                                              --> [Disabled] if it is disposable, else GiveUp
//
//   Any state before Dying, and Dying itself, when its machine is lost:
//        ---- machine_lost: Lost, Unwire ---> [Waiting] ---- machine_back ---> [Resting]
//                                                |
//                                                +---- machine_wait passes: GiveUp
//
// - The machine of a stage may be lost instead of the stage alone. That is no death of the stage:
//   it does not count in the restart intensity. A disposable stage (OnDeath::RestartAlone) waits
//   without a limit, and the pipeline goes on without it; another one for machine_wait.
// - Suspicion closes the channels and kills; only `gone` (the process descriptor: its memory is
//   free) lets the next incarnation begin, with the next epoch.
// - Join makes channels between the new incarnation and every process that is Wiring or Up; those
//   answer `rewired`. Two stages that come back at once get their common channel when the second
//   one joins.
// - A new incarnation that is not Up within the start limit is suspected; if only the answers of
//   survivors are missing, those survivors are suspected instead.
// - A pause of the machine (paused()) extends limits and does not count as time of work. A limit is
//   extended by kPausesMax pauses only, because a caller whose own handlers take long would report
//   a pause each time.
// - An event of an old epoch changes nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "runtime/loop/context.hpp"
#include "runtime/loop/process_spec.hpp"

namespace paceline {

/// As in Erlang/OTP, the supervisor gives up after more than restarts_max restarts within `period`.
/// Unlike there, only time in which the stage was Up counts: loading a large model takes longer
/// than the period, so a stage that dies each time after loading would otherwise be restarted for
/// ever.
struct RestartRules {
    std::uint32_t restarts_max = 5;
    Micros period{30'000'000};
    /// Before the first, second, ... restart within `period`; the last one stays.
    std::vector<Micros> backoff{Micros{0}, Micros{200'000}, Micros{1'000'000}, Micros{5'000'000}};
    Micros start_limit{120'000'000};  // from Spawn to greeted, and again from Join to Joined
    Micros machine_wait{60'000'000};  // for a machine, of a stage that decoding needs
};

/// At most this many pauses, of any length, extend a limit. More mean that the caller itself is
/// always late.
inline constexpr std::uint32_t kPausesMax = 16;

enum class StageHealth : std::uint8_t { Up, Wiring, Loading, Resting, Dying, Disabled, Waiting };
[[nodiscard]] const char* name_of(StageHealth health);

class Recovery {
public:
    struct Member {
        StageId id;
        std::string name;  // for messages
        OnDeath on_death = OnDeath::StopRun;
    };

    // ---- commands, to be carried out in order ----

    /// SIGKILL; `gone` follows when the process is no more.
    struct Kill {
        StageId id;
        Epoch epoch;
    };
    /// Start the next incarnation; `greeted` follows when it has loaded.
    struct Spawn {
        StageId id;
        Epoch epoch;
    };
    /// The conductor's own actor must know that this stage, which was Up, is lost.
    struct Lost {
        StageId id;
        std::string why;
    };
    /// Those that share channels with the lost incarnation are told.
    struct Unwire {
        StageId id;
        Epoch epoch;
        std::vector<StageId> survivors;
    };
    /// Make channels between this incarnation and these; `ready` and one `rewired` each follow.
    struct Join {
        StageId id;
        Epoch epoch;
        std::vector<StageId> survivors;
    };
    /// All is wired: the conductor's actor may count on it.
    struct Joined {
        StageId id;
        Epoch epoch;
    };
    /// It will not come back; the pipeline goes on without it.
    struct Disabled {
        StageId id;
        std::string why;
    };
    /// The run cannot go on.
    struct GiveUp {
        Error error;
    };
    using Command = std::variant<Kill, Spawn, Lost, Unwire, Join, Joined, Disabled, GiveUp>;

    /// All members are Up in epoch 1: the run has begun.
    Recovery(std::vector<Member> members, RestartRules rules);

    // ---- events ----

    /// The stage is faulty, though its process may still run.
    void suspect(StageId id, Epoch epoch, const std::string& why, Micros now);
    /// The stage cannot start, for a reason that the next incarnation would meet too (a file is
    /// gone): it is not restarted.
    void hopeless(StageId id, Epoch epoch, Micros now);
    /// A request caused its newest loss: that death does not count in the restart intensity and the
    /// back-off.
    void excuse(StageId id);
    /// Its process has ended; `how` is its exit report.
    void gone(StageId id, Epoch epoch, const std::string& how, Micros now);
    /// Its machine is lost, and with it the process: the next incarnation waits for a machine.
    void machine_lost(StageId id, Epoch epoch, const std::string& why, Micros now);
    /// There is a machine for it. Ignored unless it is Waiting.
    void machine_back(StageId id, Micros now);
    void greeted(StageId id, Epoch epoch, Micros now);
    void ready(StageId id, Epoch epoch, Micros now);
    /// `survivor` has the channels that the Join of `peer` made.
    void rewired(StageId survivor, StageId peer, Epoch peer_epoch, Micros now);
    /// Time has passed: handles restarts that are due and incarnations that took too long.
    void tick(Micros now);
    /// The machine, or the caller, may have been frozen for `gap` until now: start limits are
    /// extended by it, and it does not count as time of work. Call before tick().
    void paused(Micros gap, Micros now);

    [[nodiscard]] std::optional<Command> next();
    /// When tick() must be called at the latest.
    [[nodiscard]] std::optional<Micros> due() const;

    [[nodiscard]] Epoch epoch_of(StageId id) const;
    [[nodiscard]] StageHealth health_of(StageId id) const;
    /// Why its last incarnation ended, as a sentence; empty if none has.
    [[nodiscard]] const std::string& why_of(StageId id) const { return at(id).why; }

private:
    struct State {
        Member member;
        Epoch epoch{1};
        StageHealth health = StageHealth::Up;
        bool was_up = true;               // Joined was said of this incarnation
        bool ready = false;               // in Wiring
        bool hopeless = false;            // no restart
        bool lost = false;                // Lost was said of this incarnation; `gone` is to come
        bool excused = false;             // and does not count
        std::set<StageId> outstanding{};  // survivors whose `rewired` is missing
        Micros died{0};                   // when Resting began
        Micros due{0};  // Resting: of the restart; Loading, Wiring, Waiting: the limit
        std::optional<Micros> machine_due{};  // since it lost one and was not Up again: the limit
        std::uint32_t pauses = 0;             // of this incarnation, that moved its limit
        Micros up_since{0};                   // of this incarnation, once it was Up
        Micros worked{0};                     // time that all incarnations before it were Up
        std::deque<Micros> deaths{};          // within the period, by `worked`
        std::string why{};                    // of the last suspicion or death
    };

    [[nodiscard]] State* current(StageId id, Epoch epoch);
    [[nodiscard]] const State& at(StageId id) const;
    [[nodiscard]] std::vector<StageId> wired_besides(StageId id) const;
    void lose(State& state, Micros now);
    void forget_in_others(StageId id, Micros now);
    void check_joined(State& state, Micros now);
    void too_slow(State& state, Micros now);
    void rest_or_give_up(State& state, Micros now);
    void raise_epoch(State& state);
    void count_death(State& state);
    [[nodiscard]] Micros backoff_of(const State& state) const;
    void give_up(State& state, std::string text);

    std::vector<State> states_;
    RestartRules rules_;
    std::deque<Command> commands_;
};

}  // namespace paceline
