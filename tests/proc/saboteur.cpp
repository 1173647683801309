#include "tests/proc/saboteur.hpp"

#include <algorithm>
#include <signal.h>
#include <utility>

namespace paceline::testing {
namespace {

constexpr Micros kTick{1'000};
constexpr Micros kSecondWithin{50'000};
constexpr Micros kIntoRecovery{10'000};

Micros up_to(std::mt19937_64& random, Micros limit) {
    return Micros{
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit.count() + 1))};
}

}  // namespace

Saboteur::Saboteur(const Supervisor& supervisor, const ToyPlan& toy, SabotagePlan plan)
    : supervisor_{supervisor},
      toy_{toy},
      plan_{std::move(plan)},
      homes_{toy_homes(toy)},
      random_{plan_.seed} {}

void Saboteur::on_start(StageContext& context) {
    context_ = &context;
    started_ = context.now();
    due_ = started_ + up_to(random_, plan_.gap_max);
    context.schedule(kTick, [this] { tick(); });
}

void Saboteur::handle(StageId /*from*/, std::uint16_t /*kind*/, std::span<const std::byte>) {}
void Saboteur::on_peer(StageId peer, PeerChange change) {
    if (change == PeerChange::Lost) {
        lost_.insert(peer);
        noticed_ = true;
    } else {
        lost_.erase(peer);
    }
}

bool Saboteur::done() const {
    return !struck_ && signals_ >= plan_.signals;
}

void Saboteur::tick() {
    const Micros now = context_->now();
    count_deaths();
    if (now - started_ > plan_.run_limit) {
        context_->fail({Errc::Cancelled, "the run took too long: " + state()});
        return;
    }
    if (!struck_) {
        if (!done() && now >= due_ && lost_.empty()) strike(now);
    } else {
        if (follows_) follow_recovery(now);
        if (second_at_ && now >= *second_at_) {
            second_at_.reset();
            (void)send(second_home_, SIGKILL);
        }
        const bool replaced = supervisor_.pids()[victim_] != victim_pid_;
        if (resume_at_ && now >= *resume_at_ && (replaced || !plan_.until_replaced)) {
            ::kill(victim_pid_, SIGCONT);  // harmless if another process has the number by now
            resume_at_.reset();
            noticed_ = true;
        }
        if (now - struck_at_ > plan_.recovery_limit) {
            context_->fail({Errc::Cancelled, "no token after a strike: " + state()});
            return;
        }
    }
    context_->schedule(kTick, [this] { tick(); });
}

std::size_t Saboteur::any_home() {
    if (!plan_.only) return random_() % homes_.size();
    for (std::size_t i = 0; i < homes_.size(); ++i) {
        if (homes_[i].front() == *plan_.only) return i;
    }
    return 0;
}

bool Saboteur::send(std::size_t home, int signal) {
    const pid_t pid = supervisor_.pids()[home];
    if (pid <= 0 || ::kill(pid, signal) != 0) return false;
    ++signals_;
    if (!struck_) victim_pid_ = pid;
    essential_ = essential_ || homes_[home].front() != toy_draft(toy_);
    return true;
}

void Saboteur::strike(Micros now) {
    victim_ = any_home();
    essential_ = false;
    noticed_ = false;
    if (!send(victim_, plan_.strike == Strike::Pause ? SIGSTOP : SIGKILL)) return;
    struck_ = true;
    struck_at_ = now;
    second_home_ = random_() % 2 == 0 ? victim_ : any_home();
    if (plan_.strike == Strike::KillTwo) second_at_ = now + up_to(random_, kSecondWithin);
    follows_ = plan_.strike == Strike::KillInRecovery;
    if (plan_.strike == Strike::Pause) resume_at_ = now + plan_.pause;
}

/// Fixes the time of a second strike that waits for the first one's recovery to be under way.
void Saboteur::follow_recovery(Micros now) {
    const pid_t pid = supervisor_.pids()[second_home_];
    const bool again = second_home_ == victim_;
    const bool under_way = again ? pid != 0 && pid != victim_pid_ : noticed_;
    if (!under_way) return;
    follows_ = false;
    second_at_ = now + up_to(random_, kIntoRecovery);
}

void Saboteur::on_token(Micros now) {
    const bool over =
        struck_ && noticed_ && lost_.empty() && !follows_ && !second_at_ && !resume_at_;
    if (!over) return;
    if (essential_) recoveries_.push_back(now - struck_at_);
    struck_ = false;
    due_ = now + up_to(random_, plan_.gap_max);
}

void Saboteur::count_deaths() {
    for (const StageRecord& record : supervisor_.records()) {
        std::uint32_t& epoch = epochs_[record.id];
        epoch = std::max(epoch, record.epoch.value);
    }
}

int Saboteur::deaths_of(StageId process) const {
    const auto found = epochs_.find(process);
    return found == epochs_.end() ? 0 : static_cast<int>(found->second) - 1;
}

int Saboteur::deaths() const {
    int deaths = 0;
    for (const auto& home : homes_) deaths += deaths_of(home.front());
    return deaths;
}

std::string Saboteur::state() const {
    std::string text;
    for (const auto& home : homes_) {
        text += "stage " + std::to_string(home.front().value) + " is " +
                name_of(supervisor_.health_of(home.front())) + ", ";
    }
    return text + std::to_string(signals_) + " signals were sent, " + std::to_string(deaths()) +
           " incarnations ended";
}

}  // namespace paceline::testing
