#include "runtime/cluster/agent_session.hpp"

#include <chrono>
#include <fmt/core.h>
#include <optional>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>

#include "runtime/cluster/bell_watch.hpp"
#include "runtime/cluster/board_mirror.hpp"
#include "runtime/cluster/bulk_order.hpp"
#include "runtime/cluster/node_link.hpp"
#include "runtime/cluster/node_memory.hpp"
#include "runtime/cluster/relay.hpp"

namespace paceline {
namespace {

using Nanos = std::chrono::nanoseconds;

/// Between two rounds without news: deadlines are looked at as often.
constexpr BellWatch::Micros kRoundLimit{10'000};
constexpr std::chrono::milliseconds kCountersInterval{50};

class Session final : public AgentSession {
public:
    Session(boost::asio::io_context& io,
            remote::ConnectionPtr connection,
            const AgentPlan& plan,
            std::function<void()> greeted,
            std::function<void(const SessionEnd&)> over)
        : io_{io},
          plan_{plan},
          greeted_{std::move(greeted)},
          over_{std::move(over)},
          link_{std::move(connection)},
          relay_{link_, [this](std::uint32_t edge, const Error& error) { blame(edge, error); }} {}
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session() override { *alive_ = false; }

    void begin() {
        link_.start({.on_frame = [this](const remote::Frame& frame) { return on_frame(frame); },
                     .on_end =
                         [this](const Error& error) {
                             end({SessionEnd::Cause::Lost, error.what});
                         },
                     .on_room = [this] { round(); }});
        said_hello_ = lease_clock();
        link_.say(plan_.hello);
    }
    void add_bulk(remote::ConnectionPtr connection) override;
    void no_bulk(const Error& error) override;
    void leave(const std::string& reason) override {
        link_.say(remote::Shutdown{reason});
        end({SessionEnd::Cause::Shutdown, reason});
    }

private:
    [[nodiscard]] Status on_frame(const remote::Frame& frame);
    [[nodiscard]] Status greet(const remote::Hello& hello);
    [[nodiscard]] Status serve(const remote::Frame& frame);
    [[nodiscard]] Status handle(const remote::Frame& frame);
    [[nodiscard]] Status on_bulk_frame(const remote::Frame& frame);
    [[nodiscard]] std::optional<remote::StageKey> stage_of(const remote::Frame& frame) const;
    void lose_bulk() { end({SessionEnd::Cause::Lost, "its second connection: " + bulk_over_}); }
    void round();
    void pump();
    void blame(std::uint32_t edge, const Error& error);
    /// The owner is told when nothing of this object is on the call stack.
    void end(SessionEnd how) {
        if (std::exchange(ended_, true)) return;
        bell_.reset();
        bulk_.reset();
        relay_.clear();
        stages_.reset();  // kills and reaps
        link_.close(how.text);
        boost::asio::post(io_, [alive = alive_, over = over_, how = std::move(how)] {
            if (*alive) over(how);
        });
    }

    boost::asio::io_context& io_;
    AgentPlan plan_;
    std::function<void()> greeted_;
    std::function<void(const SessionEnd&)> over_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
    NodeLink link_;
    Relay relay_;
    NodeMemory memory_;
    std::optional<BoardMirror> board_;
    Nanos said_hello_{0};
    std::optional<LeaseHolder> lease_;
    ClockOffset clock_;
    std::unique_ptr<AgentStages> stages_;
    std::unique_ptr<BellWatch> bell_;
    remote::ConnectionPtr bulk_;
    BulkOrder bulk_order_;
    std::string bulk_over_;  // why, once it is
    std::uint64_t run_ = 0;  // the conductor's session number
    Nanos counted_at_{0};
    bool round_posted_ = false;
    bool ended_ = false;
};

Status Session::on_frame(const remote::Frame& frame) {
    if (ended_) return {};
    // The conductor raises it when this machine gets its place.
    link_.set_epoch(link_.peer_epoch());
    if (const auto* refused = std::get_if<remote::Refused>(&frame)) {
        end({SessionEnd::Cause::Refused, refused->reason, refused->passes});
        return {};
    }
    if (const auto* hello = std::get_if<remote::Hello>(&frame)) return greet(*hello);
    if (!stages_) {
        return Error{Errc::Protocol, std::string{"'"} + remote::name_of(remote::kind_of(frame)) +
                                         "' came before Hello"};
    }
    const Status served = serve(frame);
    if (served.ok() && !ended_ && relay_.take_room()) pump();
    if (!served.ok()) end({SessionEnd::Cause::Failed, served.error().what});
    return served;
}

Status Session::greet(const remote::Hello& hello) {
    if (stages_) return Error{Errc::Protocol, "a second Hello"};
    const bool is_own =
        hello.session == plan_.hello.session || hello.machine == plan_.hello.machine;
    if (is_own) {
        const std::string why = fmt::format(
            "{} answers with the identity of this machine, '{}': the connection leads back to it",
            link_.peer(), plan_.hello.node);
        link_.say(remote::Refused{why});
        end({SessionEnd::Cause::Refused, why});
        return {};
    }
    // The first lease is as long as the conductor counts it.
    if (hello.lease_ms != 0) plan_.lease.length = std::chrono::milliseconds{hello.lease_ms};
    const auto begin = [&]() -> Status {
        if (const Status opened = memory_.open(); !opened.ok()) return opened;
        Result<std::shared_ptr<CancelBoard>> board = memory_.board();
        if (!board.ok()) return board.error();
        board_.emplace(std::move(board).value());
        Result<std::unique_ptr<AgentStages>> stages =
            AgentStages::create(link_, memory_, plan_.check_assignment, plan_.cores);
        if (!stages.ok()) return stages.error();
        stages_ = std::move(stages).value();
        const auto bells = [this] { return memory_.relay_bell(); };
        if (const Status wakes = stages_->wake_with(bells); !wakes.ok()) return wakes;
        Result<Doorbell> bell = memory_.relay_bell();
        if (!bell.ok()) return bell.error();
        bell_ = std::make_unique<BellWatch>(io_, std::move(bell).value(), kRoundLimit,
                                            [this] { round(); });
        return {};
    };
    const Status begun = begin();
    if (!begun.ok()) {
        end({SessionEnd::Cause::Failed, begun.error().what});
        return begun;
    }
    run_ = hello.session;
    lease_.emplace(plan_.lease, said_hello_);
    if (plan_.say) plan_.say("serving " + hello.node + " (" + link_.peer() + ")");
    round();
    if (greeted_) greeted_();
    return {};
}

// ---- the second connection ----

void Session::add_bulk(remote::ConnectionPtr connection) {
    if (ended_ || bulk_) return;  // one that is not kept is closed
    bulk_ = std::move(connection);
    bulk_->start({.on_frame = [this](const remote::Frame& frame,
                                     Epoch /*node_epoch*/) { return on_bulk_frame(frame); },
                  .on_end =
                      [this](const Error& error) {
                          // At the end of a run the first one says why.
                          bulk_over_ = error.what;
                          if (bulk_order_.holds_any()) lose_bulk();
                      },
                  .on_room = {}});
    remote::Hello hello = plan_.hello;
    hello.channel = remote::Channel::Bulk;
    (void)bulk_->send(hello, link_.epoch(), remote::Lane::Control, true);
}

void Session::no_bulk(const Error& error) {
    if (ended_ || bulk_) return;
    bulk_over_ = error.what;
    if (bulk_order_.holds_any()) lose_bulk();
}

Status Session::on_bulk_frame(const remote::Frame& frame) {
    if (ended_) return {};
    if (const auto* hello = std::get_if<remote::Hello>(&frame)) {
        if (hello->channel != remote::Channel::Bulk || hello->session != run_)
            return Error{Errc::Protocol, "a connection of another run"};
        return {};
    }
    const auto* control = std::get_if<remote::StageControl>(&frame);
    if (control == nullptr || !stages_) return Error{Errc::Protocol, "only a Begin is expected"};
    const remote::StageKey who = control->who;
    Status status = stages_->pass_on(*control);
    for (const BulkOrder::Held& held : bulk_order_.arrived(who)) {
        if (status.ok() && !ended_) status = handle(held.frame);
    }
    if (!ended_) memory_.drop(bulk_order_.to_drop(), relay_);
    return status;
}

std::optional<remote::StageKey> Session::stage_of(const remote::Frame& frame) const {
    if (const auto* control = std::get_if<remote::StageControl>(&frame)) return control->who;
    if (const auto* edge = std::get_if<remote::EdgeFrame>(&frame))
        return memory_.stage_at(edge->edge);
    if (const auto* part = std::get_if<remote::TensorPart>(&frame))
        return memory_.stage_at(part->edge);
    return std::nullopt;
}

// ---- serving ----

/// At once, or behind a Begin that is still on its way.
Status Session::serve(const remote::Frame& frame) {
    if (const auto* mark = std::get_if<remote::BulkMark>(&frame)) {
        bulk_order_.mark(*mark);
        if (!bulk_over_.empty()) lose_bulk();
        return {};
    }
    if (bulk_order_.holds_any()) {
        const std::optional<remote::StageKey> stage = stage_of(frame);
        if (stage && bulk_order_.holds(*stage)) {
            bulk_order_.hold(*stage, frame);
            return {};
        }
    }
    return handle(frame);
}

Status Session::handle(const remote::Frame& frame) {
    Status status;
    if (const auto* grant = std::get_if<remote::LeaseGrant>(&frame)) {
        lease_->granted(grant->number, Nanos{grant->asked_ns},
                        std::chrono::milliseconds{grant->lease_ms});
        // A grant to an agent without a place tells no time.
        if (grant->granted_ns != 0)
            clock_.add(Nanos{grant->asked_ns}, Nanos{grant->granted_ns}, lease_clock());
        stages_->set_clock_ahead(clock_.ahead().value_or(Nanos{0}));
    } else if (const auto* start = std::get_if<remote::StartStage>(&frame)) {
        stages_->start(*start);
    } else if (const auto* make = std::get_if<remote::MakeMemory>(&frame)) {
        status = memory_.make(*make, relay_);
    } else if (const auto* drop = std::get_if<remote::DropMemory>(&frame)) {
        memory_.drop(bulk_order_.to_drop(*drop), relay_);
    } else if (const auto* control = std::get_if<remote::StageControl>(&frame)) {
        status = stages_->pass_on(*control);
    } else if (const auto* edge = std::get_if<remote::EdgeFrame>(&frame)) {
        status = relay_.take(*edge);
    } else if (const auto* part = std::get_if<remote::TensorPart>(&frame)) {
        status = relay_.take(*part);
    } else if (const auto* room = std::get_if<remote::EdgeRoom>(&frame)) {
        status = relay_.take(*room);
    } else if (const auto* free = std::get_if<remote::TensorFree>(&frame)) {
        status = relay_.take(*free);
    } else if (const auto* line = std::get_if<remote::BoardLine>(&frame)) {
        board_->take(*line);
    } else if (const auto* ask = std::get_if<remote::CountersAsk>(&frame)) {
        stages_->answer(*ask);
    } else if (const auto* kill = std::get_if<remote::Kill>(&frame)) {
        stages_->kill(*kill);
    } else if (const auto* shutdown = std::get_if<remote::Shutdown>(&frame)) {
        end({SessionEnd::Cause::Shutdown, shutdown->reason});
    } else {
        status = Error{Errc::Protocol, std::string{"the conductor sent '"} +
                                           remote::name_of(remote::kind_of(frame)) + "'"};
    }
    return status;
}

/// Everything that can be done without waiting.
void Session::round() {
    if (ended_ || !stages_) return;
    const Nanos now = lease_clock();
    if (lease_->is_over(now)) {
        return end({SessionEnd::Cause::LeaseOver,
                    fmt::format("nothing came from the conductor for {} s",
                                std::chrono::duration<double>(plan_.lease.length).count())});
    }
    if (const auto ask = lease_->ask(now))
        link_.say(remote::LeaseAsk{ask->number, static_cast<std::uint64_t>(ask->asked.count())});
    stages_->poll(now);
    if (ended_) return;
    pump();
    board_->pump(link_);
    if (stages_->empty() || now - counted_at_ < kCountersInterval) return;
    counted_at_ = now;
    link_.say(stages_->counters(now));
}

/// A further round follows behind other work of the thread if there was more than one can move.
void Session::pump() {
    if (!relay_.pump() || std::exchange(round_posted_, true)) return;
    boost::asio::post(io_, [this, alive = alive_] {
        if (!*alive) return;
        round_posted_ = false;
        round();
    });
}

void Session::blame(std::uint32_t edge, const Error& error) {
    const std::optional<remote::StageKey> stage = memory_.stage_at(edge);
    if (stage && stages_) stages_->blame(*stage, error);
}

}  // namespace

std::unique_ptr<AgentSession> AgentSession::start(boost::asio::io_context& io,
                                                  remote::ConnectionPtr connection,
                                                  const AgentPlan& plan,
                                                  std::function<void()> greeted,
                                                  std::function<void(const SessionEnd&)> over) {
    auto session = std::make_unique<Session>(io, std::move(connection), plan, std::move(greeted),
                                             std::move(over));
    session->begin();
    return session;
}

}  // namespace paceline
