// The implementation of Supervisor: its table of stages, the events of its node agent, and the commands of
// recovery. Included by supervisor.cpp (starting and ending) and supervisor_running.cpp alone.
//
// Phases:   [Starting] --wire() has returned--> [Running] --shutdown()--> [Ending]
// While Starting any death ends the run; while Running recovery.hpp decides; while Ending the supervisor
// waits for the stages to end.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/parent/failure_story.hpp"
#include "runtime/parent/node_agent.hpp"
#include "runtime/parent/stage_watch.hpp"
#include "runtime/parent/supervisor.hpp"

namespace paceline {

class Supervisor::Impl {
public:
    explicit Impl(SupervisorOptions options) : options_{std::move(options)} {
        options_.restarts.start_limit = options_.start_limit;
    }

    [[nodiscard]] Status open();
    [[nodiscard]] Status start(std::span<const ProcessSpec> processes);
    [[nodiscard]] Result<std::vector<control::Hello>> await_hellos();
    [[nodiscard]] Result<Wiring> wire(std::span<const EdgeSpec> edges, std::uint32_t spin_micros);
    [[nodiscard]] Status shutdown();
    [[nodiscard]] Status send(Envelope envelope, const control::Message& message);
    [[nodiscard]] Status poll(const Deliver& deliver);
    [[nodiscard]] Status report_fault(StageId peer, Epoch peer_epoch, const Error& error);
    void excuse_loss(StageId peer);
    [[nodiscard]] std::vector<pid_t> pids() const;
    [[nodiscard]] StageHealth health_of(StageId id) const;
    [[nodiscard]] const std::vector<StageRecord>& records() const { return records_; }

private:
    enum class Phase : std::uint8_t { Starting, Running, Ending };
    enum class State : std::uint8_t { Loading, Greeted, Ready };
    /// The last peer whose channel a stage reported as broken, and when.
    struct Blame {
        Incarnation whom;
        Micros at;
    };
    /// One stage and its newest incarnation.
    struct Stage {
        ProcessSpec spec;
        Epoch epoch{1};
        State state = State::Loading;
        std::optional<control::Hello> hello{};  // of the first incarnation; all others must equal
        std::optional<Doorbell> bell{};
        ShmFile telemetry_file{};
        std::optional<StageTelemetryView> telemetry{};
        StageWatch watch;
        std::optional<Blame> blame{};  // the last one that it complained of
        bool hung = false;             // its job went on after its deadline
        bool gone = false;
        bool ended_well = false;
        std::string exit_report{};
        std::optional<Error> failure{};  // why it is not to be relied on, before the run began
        Incarnation who() const { return {spec.id, epoch}; }
    };

    // Starting.
    [[nodiscard]] Status start_one(Stage& stage);
    [[nodiscard]] Status await_state(State state, const char* what);
    [[nodiscard]] Result<Wiring> own_wiring();
    [[nodiscard]] Result<StageTelemetry> own_page();
    void remember(const Stage& stage);
    /// Handles events until `done`, trouble, or the deadline (true if done).
    template <class Done>
    [[nodiscard]] Result<bool> run_until(NodeAgent::Deadline deadline, Done done);
    [[nodiscard]] Status trouble();

    // What the node agent sees.
    [[nodiscard]] Stage* current(Incarnation who);
    [[nodiscard]] Stage* find(StageId id);
    void on_message(Incarnation who, ControlSocket::Received received);
    [[nodiscard]] static bool is_own_mail(const Stage& stage, const Envelope& envelope);
    void on_edge_fault(Stage& stage, const control::EdgeFault& fault);
    void on_offer(Stage& stage, const control::EdgeOffer& offer, std::span<const OwnedFd> files);
    void on_hello(Stage& stage, control::Hello hello);
    void on_failed(Stage& stage, const control::Failed& failed);
    void on_nonsense(Stage& stage, const std::string& complaint);
    void on_silence(Incarnation who, const Error& error);
    void on_exit(Incarnation who, bool well, const std::string& how);
    static void on_stopped(Stage& stage, bool stopped);
    void note_pause();
    void poll_telemetry();

    // What recovery decides.
    void carry_out_commands();
    void carry_out(const Recovery::Spawn& spawn);
    void carry_out(const Recovery::Unwire& unwire);
    void carry_out(const Recovery::Join& join);
    void carry_out(const Recovery::Joined& joined);
    void carry_out(const Recovery::Kill& kill) { node_->kill({kill.id, kill.epoch}); }
    void carry_out(const Recovery::Lost& /*lost*/) {}  // Unwire tells the loop, and it the actor
    void carry_out(const Recovery::Disabled& disabled) {
        news(disabled.why + "; going on without it");
    }
    void carry_out(const Recovery::GiveUp& give_up) {
        end_ = Error{give_up.error.code, give_up.error.what + story_.text()};
    }
    [[nodiscard]] Status send_wire(Stage& stage);
    [[nodiscard]] Status send_to(Stage& stage,
                                 const control::Message& message,
                                 std::span<const int> files = {},
                                 Envelope envelope = {});
    void news(const std::string& sentence) const {
        if (options_.on_news) options_.on_news(sentence);
    }

    SupervisorOptions options_;
    std::vector<Stage> stages_;     // in starting order
    std::deque<PortEvent> events_;  // for the loop
    std::optional<WiringPlan> plan_;
    std::optional<Recovery> recovery_;  // once the run has begun
    ShmFile board_file_;
    ShmFile own_telemetry_file_;
    std::shared_ptr<StageTelemetry> own_telemetry_;  // shared with the conductor's loop; once wired
    std::vector<StageRecord> records_;
    FailureStory story_;
    std::optional<Error> end_;
    int signal_ = 0;  // SIGINT or SIGTERM, once one has come
    Phase phase_ = Phase::Starting;
    StageWatch::Nanos polled_at_{0};
    StageWatch::Nanos looked_at_{0};   // at the telemetry blocks
    std::unique_ptr<NodeAgent> node_;  // last: its events end before what they touch
};

}  // namespace paceline
