#include "launch/cluster/agent.hpp"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fmt/core.h>
#include <memory>
#include <optional>
#include <signal.h>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "ipc/remote/secure_connection.hpp"
#include "launch/base/exit_codes.hpp"
#include "launch/base/report.hpp"
#include "launch/cluster/agent_models.hpp"
#include "model/weights/message_text.hpp"
#include "runtime/cluster/agent_session.hpp"
#include "runtime/parent/affinity.hpp"

namespace paceline {
namespace {

namespace asio = boost::asio;
using SteadyClock = std::chrono::steady_clock;

constexpr const char* kAgentCommand = "agent";
/// For a conductor that starts a little later, and for one whose connection was lost.
constexpr std::chrono::seconds kFirstLimit{14};
constexpr std::chrono::seconds kAgainLimit{60};
constexpr std::chrono::milliseconds kRefusedPause{500};  // before the next try
constexpr std::chrono::milliseconds kGoodbye{200};

/// The sessions of an agent, one after the other, on the thread that runs `io`.
class Agent {
public:
    Agent(const remote::NodeKey& key, AgentPlan plan) : key_{key}, plan_{std::move(plan)} {
        plan_.say = [](const std::string& sentence) { remark(kAgentCommand, sentence); };
    }
    Agent(const Agent&) = delete;
    Agent& operator=(const Agent&) = delete;

    void meet(const remote::NodePlace& place) {
        meet_ = place;
        until_ = SteadyClock::now() + kFirstLimit;
        dial();
    }
    int run();

private:
    void dial();
    void serve(remote::ConnectionPtr connection);
    void dial_bulk();
    void over(const SessionEnd& how);
    void refused(const SessionEnd& how);
    void finish(int code) {
        code_ = code;
        session_.reset();
        dialling_.reset();
        signals_.cancel();
        pause_.cancel();
        io_.stop();
    }
    void await_signal();
    void on_signal(int signal);

    remote::NodeKey key_;
    AgentPlan plan_;
    remote::NodePlace meet_;
    asio::io_context io_{1};
    asio::signal_set signals_{io_, SIGINT, SIGTERM, SIGUSR1};
    asio::steady_timer goodbye_{io_};
    asio::steady_timer pause_{io_};
    SteadyClock::time_point until_{};  // the conductor is looked for until then
    bool told_refusal_ = false;        // of this search
    std::unique_ptr<remote::Connecting> dialling_;
    std::unique_ptr<AgentSession> session_;
    int code_ = kExitOk;
    bool draining_ = false;  // after this run it ends
};

int Agent::run() {
    await_signal();
    io_.run();
    return code_;
}

void Agent::await_signal() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
        if (!error) on_signal(signal);
    });
}

/// A starter sends SIGTERM or SIGUSR1 to all machines. The conductor lets its answer end, for which
/// it needs the agents; a second SIGTERM ends at once.
void Agent::on_signal(int signal) {
    const bool waits = session_ && signal != SIGINT && (signal == SIGUSR1 || !draining_);
    if (waits) {
        draining_ = true;
        await_signal();
        return;
    }
    code_ = signal == SIGINT ? kExitInterrupted : kExitTerminated;
    if (!session_) return finish(code_);
    session_->leave(signal == SIGINT ? "interrupted (SIGINT)" : "asked to end (SIGTERM)");
    goodbye_.expires_after(kGoodbye);
    goodbye_.async_wait([this](const boost::system::error_code& /*error*/) { finish(code_); });
}

void Agent::dial() {
    dialling_ = remote::connect_to(io_, meet_, key_, {}, until_,
                                   [this](Result<remote::ConnectionPtr> connection) {
                                       if (connection.ok())
                                           return serve(std::move(connection).value());
                                       report_failure(kAgentCommand, connection.error());
                                       finish(kExitFailure);
                                   });
}

void Agent::serve(remote::ConnectionPtr connection) {
    session_ = AgentSession::start(
        io_, std::move(connection), plan_, [this] { dial_bulk(); },
        [this](const SessionEnd& how) { over(how); });
}

void Agent::dial_bulk() {
    told_refusal_ = false;
    dialling_ = remote::connect_to(io_, meet_, key_, {.channel = remote::Channel::Bulk},
                                   SteadyClock::now() + kFirstLimit,
                                   [this](Result<remote::ConnectionPtr> connection) {
                                       if (!session_) return;
                                       if (!connection.ok())
                                           return session_->no_bulk(connection.error());
                                       session_->add_bulk(std::move(connection).value());
                                   });
}

void Agent::over(const SessionEnd& how) {
    if (code_ != kExitOk) return;  // on its way out
    session_.reset();
    using Cause = SessionEnd::Cause;
    if (how.cause == Cause::Refused) return refused(how);
    if (how.cause != Cause::Shutdown) remark(kAgentCommand, "the run is lost: " + how.text);
    if (draining_) return finish(how.cause == Cause::Shutdown ? kExitOk : kExitTerminated);
    if (how.cause == Cause::Shutdown) return finish(kExitOk);
    until_ = SteadyClock::now() + kAgainLimit;
    dial();
}

void Agent::refused(const SessionEnd& how) {
    const SteadyClock::time_point next = SteadyClock::now() + kRefusedPause;
    if (!how.passes || draining_ || next >= until_) {
        remark(kAgentCommand, "refused: " + how.text);
        return finish(kExitFailure);
    }
    if (!std::exchange(told_refusal_, true)) {
        const auto left =
            std::chrono::duration_cast<std::chrono::seconds>(until_ - SteadyClock::now());
        remark(kAgentCommand,
               fmt::format("refused for now: {}; tried again for {} s: the other one may have "
                           "ended, and its lease not yet",
                           how.text, left.count()));
    }
    pause_.expires_at(next);
    pause_.async_wait([this](const boost::system::error_code& error) {
        if (!error) dial();
    });
}

Result<AgentPlan> plan_of(const AgentOptions& options) {
    if (options.models.empty())
        return Error{Errc::BadArgument,
                     "--models DIR is missing: stages read models only below it"};
    std::error_code error;
    if (!std::filesystem::is_directory(options.models, error))
        return Error{Errc::BadArgument, "--models " + options.models + " is no folder"};
    Result<remote::Hello> hello = hello_of_here(options.meeting.name);
    if (!hello) return hello.error();
    const Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    const std::vector<int> cores = machine.value().preferred_order();
    AgentPlan plan;
    plan.hello = std::move(hello).value();
    plan.cores = cores;
    plan.check_assignment = assignment_check(options.models, cores);
    return plan;
}

/// Dials the conductor.
Status begin(Agent& agent, const AgentOptions& options, const Environment& environment) {
    const std::string& node = options.meeting.node;
    const std::string& meet = options.meeting.meet;
    if (node.empty() && !meet.empty()) {
        const Result<remote::NodePlace> place = remote::NodePlace::parse(meet);
        if (!place) return Error{Errc::BadArgument, "--meet: " + place.error().what};
        agent.meet(place.value());
        return {};
    }
    const Result<std::optional<StarterPlace>> place = read_starter(node, meet, environment.starter);
    if (!place) return place.error();
    if (!place.value()) {
        return Error{
            Errc::BadArgument,
            "--meet HOST:PORT is missing, and no starter (srun, mpirun, torchrun) says where "
            "the conductor is"};
    }
    if (place.value()->rank == 0)
        return Error{Errc::BadArgument,
                     "machine 0 is the conductor's: it runs `paceline run`, not an agent"};
    agent.meet(place.value()->meet);
    return {};
}

}  // namespace

Command add_agent(Command& app, AgentOptions& options) {
    Command command =
        app.add_command(kAgentCommand, "Run stages of a pipeline for a conductor elsewhere");
    add_meeting_options(command, options.meeting);
    command.add_option("--models", options.models,
                       "folder below which stages may read models and parts");
    command.add_option("--new-key", options.new_key,
                       "make a key in this new file of mode 0600, and end");
    command.footer(R"(Examples:
  paceline agent --new-key ~/cluster.key
  paceline agent --meet node-a:47600 --key ~/cluster.key --models /models)");
    return command;
}

int run_agent(const AgentOptions& options, const Environment& environment) {
    if (!options.new_key.empty()) {
        const Status made = remote::write_new_key(options.new_key);
        return made.ok() ? kExitOk : report(kAgentCommand, made.error());
    }
    const Result<remote::NodeKey> key = meeting_key(options.meeting, environment);
    if (!key) return report(kAgentCommand, key.error());
    Result<AgentPlan> plan = plan_of(options);
    if (!plan) return report(kAgentCommand, plan.error());
    Agent agent{key.value(), std::move(plan).value()};
    if (const Status begun = begin(agent, options, environment); !begun.ok())
        return report(kAgentCommand, begun.error());
    return agent.run();
}

}  // namespace paceline
