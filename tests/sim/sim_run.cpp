#include "tests/sim/sim_run.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "actors/conductor/conductor_actor.hpp"
#include "tests/sim/alloc_faults.hpp"
#include "tests/sim/sim_scenario.hpp"

namespace paceline::testing {
namespace {

/// Virtual time in which every request must have ended once the faults have.
constexpr SimTime kLivenessLimit{400'000'000'000};
/// Until all is quiet after the last answer.
constexpr SimTime kQuietLimit{60'000'000'000};

/// One client: asks its turns one after the other and checks every token.
class Client {
public:
    Client(SimWorld& world,
           ConductorActor& conductor,
           SimTexts& texts,
           const SimClient& script,
           SimOutcome& outcome,
           bool faults)
        : world_{world},
          conductor_{conductor},
          texts_{texts},
          script_{script},
          outcome_{outcome},
          faults_{faults} {
        world_.call_at(script_.begins, [this] { ask(); });
    }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    [[nodiscard]] bool through() const { return turn_ >= script_.turns.size(); }

private:
    void ask();
    Go take(std::uint64_t number, TokenId token);
    void end(std::uint64_t number, const AnswerFigures& figures, const Status& status);
    void next_turn();

    SimWorld& world_;
    ConductorActor& conductor_;
    SimTexts& texts_;
    const SimClient& script_;
    SimOutcome& outcome_;
    bool faults_;
    std::size_t turn_ = 0;
    std::uint64_t asked_ = 0;  // orders submitted
    bool open_ = false;
    bool stopped_ = false;
    std::optional<RequestId> request_;
    std::size_t prompt_ = 0;
    std::vector<TokenId> expected_;
    std::size_t given_ = 0;
};

void Client::ask() {
    const SimTurn& turn = script_.turns[turn_];
    AnswerOrder order;
    order.continues = request_;
    order.request = turn.request;
    Request whole = turn.request;
    if (request_) {
        const std::span<const TokenId> before = conductor_.text(*request_);
        whole.text.insert(whole.text.begin(), before.begin(), before.end());
    }
    // A text that is full already is a client's mistake, not a case.
    if (static_cast<Position>(whole.text.size()) >= whole.context) {
        turn_ = script_.turns.size();
        return;
    }
    expected_ = toy_answer(whole);
    prompt_ = whole.text.size();
    given_ = 0;
    whole.text.insert(whole.text.end(), expected_.begin(), expected_.end());
    texts_.push_back(std::move(whole.text));
    const std::uint64_t number = ++asked_;
    order.on_token = [this, number](TokenId token) { return take(number, token); };
    order.on_end = [this, number](const AnswerFigures& figures, const Status& status) {
        end(number, figures, status);
    };
    if (turn.cancel_after && turn.polled) {
        order.cancelled = [this, number, until = world_.now() + *turn.cancel_after] {
            if (number == asked_ && world_.now() >= until) stopped_ = true;
            return stopped_;
        };
    }
    open_ = true;
    stopped_ = false;
    const Result<RequestId> taken = conductor_.submit(std::move(order));
    if (!taken.ok()) return world_.violate("an order was refused: " + taken.error().what);
    request_ = taken.value();
    if (!turn.cancel_after || turn.polled) return;
    world_.call_at(world_.now() + *turn.cancel_after, [this, number] {
        if (number != asked_ || !open_) return;
        stopped_ = true;
        conductor_.cancel(*request_);
    });
}

Go Client::take(std::uint64_t number, TokenId token) {
    if (number != asked_ || !open_) {
        world_.violate("a token after the end of its answer");
        return Go::Stop;
    }
    if (given_ >= expected_.size() || expected_[given_] != token) {
        world_.violate("token " + std::to_string(given_) + " of request " +
                       std::to_string(request_ ? request_->value : 0) + " is " +
                       std::to_string(token) + ", plain decoding says " +
                       (given_ < expected_.size() ? std::to_string(expected_[given_])
                                                  : std::string{"that the answer is over"}));
        return Go::Stop;
    }
    ++given_;
    ++outcome_.tokens;
    if (request_ && conductor_.text(*request_).size() < prompt_ + given_) {
        world_.violate("a client was given a token that the log does not hold");
    }
    const auto& stop_after = script_.turns[turn_].stop_after;
    if (!stop_after || given_ < *stop_after) return Go::On;
    stopped_ = true;
    return Go::Stop;
}

void Client::end(std::uint64_t number, const AnswerFigures& figures, const Status& status) {
    if (number != asked_ || !open_) return world_.violate("an answer ends twice");
    open_ = false;
    outcome_.replays += figures.replays;
    world_.tell([&] {
        return "answer ends: " + (status.ok() ? "ok" : status.error().what) + ", " +
               std::to_string(given_) + " of " + std::to_string(expected_.size()) + " tokens";
    });
    if (!status.ok()) {
        ++outcome_.failed;
        if (!faults_) world_.violate("an error without a fault: " + status.error().what);
    } else if (stopped_) {
        ++outcome_.stopped;
    } else {
        ++outcome_.answers;
        if (given_ != expected_.size()) {
            world_.violate("an answer ends after " + std::to_string(given_) + " of " +
                           std::to_string(expected_.size()) + " tokens");
        }
        if (figures.finish == FinishReason::None || figures.finish == FinishReason::Interrupted) {
            world_.violate("an answer ends by itself and does not say why");
        }
    }
    next_turn();
}

void Client::next_turn() {
    if (++turn_ >= script_.turns.size()) return;
    // Never from the callback itself: by then the answer must be over for good.
    world_.call_at(world_.now() + script_.turns[turn_].pause, [this] { ask(); });
}

class Run {
public:
    Run(std::uint64_t seed, const std::function<void(const std::string&)>& on_line)
        : scenario_{draw_scenario(seed)},
          timing_{scenario_.timing},
          conductor_{scenario_.conductor, kFakeVocab, scenario_.plan.kv_slots},
          world_{options(seed, scenario_, on_line), timing_, scenario_.processes, scenario_.edges} {
        if (on_line) on_line(scenario_.describe());
    }

    SimOutcome go() {
        world_.start(conductor_);
        world_.add_faults(scenario_.faults);
        outcome_.faults = scenario_.faults.size();
        for (const SimClient& script : scenario_.clients) {
            clients_.push_back(std::make_unique<Client>(
                world_, conductor_, *scenario_.texts, script, outcome_, !scenario_.faults.empty()));
        }
        const auto through = [this] {
            return std::all_of(clients_.begin(), clients_.end(),
                               [](const auto& client) { return client->through(); });
        };
        const bool done = world_.run(through, scenario_.faults_end + kLivenessLimit);
        if (done) {
            check_leftovers();
        } else if (!world_.gave_up() && !world_.violation()) {
            world_.violate("a request has neither finished nor failed " +
                           std::to_string(kLivenessLimit.count() / 1'000'000'000) +
                           " s after the last fault; " +
                           world_.leaked_tensors().value_or("no tensor slot is missing"));
        } else if (world_.gave_up() && scenario_.faults.empty()) {
            world_.violate("gave up without a fault: " + world_.gave_up()->what);
        }
        return result();
    }

private:
    static SimOptions options(std::uint64_t seed,
                              const SimScenario& scenario,
                              const std::function<void(const std::string&)>& on_line) {
        SimOptions options;
        options.seed = seed ^ 0x5eed5eed5eedULL;
        options.restarts = scenario.restarts;
        options.on_line = on_line;
        options.allocations = &set_allocations_left;
        return options;
    }

    void check_leftovers() {
        (void)world_.run([] { return false; }, world_.now() + kQuietLimit);
        if (world_.violation() || world_.gave_up()) return;
        if (!world_.all_up()) return world_.violate("a stage has not come back");
        if (const auto channel = world_.forgotten_channels()) return world_.violate(*channel);
        if (const auto leak = world_.leaked_tensors()) world_.violate(*leak);
        if (conductor_.open_requests() != 0) world_.violate("a request is open for ever");
    }

    SimOutcome result() {
        outcome_.violation = world_.violation();
        outcome_.hash = world_.hash();
        outcome_.events = world_.events();
        outcome_.fenced = conductor_.fenced();
        outcome_.restarts = world_.incarnations().size() - 1 - scenario_.processes.size();
        outcome_.gave_up = world_.gave_up().has_value();
        return outcome_;
    }

    SimScenario scenario_;
    RandomTiming timing_;
    ConductorActor conductor_;
    SimOutcome outcome_;
    std::vector<std::unique_ptr<Client>> clients_;
    SimWorld world_;
};

}  // namespace

SimOutcome run_seed(std::uint64_t seed, const std::function<void(const std::string&)>& on_line) {
    return Run{seed, on_line}.go();
}

}  // namespace paceline::testing
