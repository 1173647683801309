#include "launch/grammar/grammar_helpers.hpp"

#include <algorithm>
#include <future>
#include <utility>

namespace paceline {

GrammarHelpers::GrammarHelpers(GrammarVocabulary vocabulary, GrammarHelperOptions options)
    : task_{options.limits, std::move(vocabulary)}, options_{std::move(options)} {
    if (!has_grammars()) return;  // nothing is ever asked
    for (std::size_t i = 0; i < options_.helpers; ++i)
        helpers_.push_back(std::make_unique<HelperProcess>(task_, options_.command));
    for (const auto& helper : helpers_) threads_.emplace_back([this, &helper] { work(*helper); });
}

GrammarHelpers::~GrammarHelpers() {
    std::map<std::string, Job> left;
    {
        const std::lock_guard lock{mutex_};
        ending_ = true;
        for (const std::string& hash : waiting_) left.insert(jobs_.extract(hash));
        waiting_.clear();
    }
    changed_.notify_all();
    for (const auto& helper : helpers_) helper->stop();
    for (std::thread& thread : threads_) thread.join();
    for (auto& [hash, job] : left) {
        for (const Wanted& each : job.wanted) {
            if (has_left(each)) continue;
            each.done(Error{Errc::Cancelled, "grammars are no longer compiled: shutting down"});
        }
    }
}

void GrammarHelpers::compile(const GrammarSpec& spec, Done done, Waiter waiter) {
    if (!has_grammars()) return done(no_grammars());
    const std::string hash = hash_of(spec);
    std::unique_lock lock{mutex_};
    if (const Result<CompiledGrammarPtr>* found = find(hash)) {
        const Result<CompiledGrammarPtr> result = *found;
        lock.unlock();
        return done(result);
    }
    if (const auto job = jobs_.find(hash); job != jobs_.end())
        return job->second.wanted.push_back({std::move(done), std::move(waiter)});
    drop_unwanted();
    if (ending_ || waiting_.size() >= options_.waiting_max) {
        lock.unlock();
        return done(
            Error{Errc::Cancelled, "too many grammars wait to be compiled; try again later"});
    }
    Job& job = jobs_.emplace(hash, Job{spec, {}}).first->second;
    job.wanted.push_back({std::move(done), std::move(waiter)});
    waiting_.push_back(hash);
    lock.unlock();
    changed_.notify_one();
}

bool GrammarHelpers::has_left(const Wanted& wanted) {
    return wanted.waiter && wanted.waiter->expired();
}

/// Grammars that wait for a helper and that no one else waits for: clients that have left.
void GrammarHelpers::drop_unwanted() {
    std::erase_if(waiting_, [this](const std::string& hash) {
        std::vector<Wanted>& wanted = jobs_.at(hash).wanted;
        std::erase_if(wanted, [](const Wanted& each) { return has_left(each); });
        if (!wanted.empty()) return false;
        jobs_.erase(hash);
        return true;
    });
}

Result<CompiledGrammarPtr> GrammarHelpers::compile_and_wait(const GrammarSpec& spec) {
    std::promise<Result<CompiledGrammarPtr>> made;
    std::future<Result<CompiledGrammarPtr>> result = made.get_future();
    compile(spec, [&made](const Result<CompiledGrammarPtr>& each) { made.set_value(each); });
    return result.get();
}

std::uint64_t GrammarHelpers::compilations() const {
    const std::lock_guard lock{mutex_};
    return compilations_;
}

void GrammarHelpers::work(HelperProcess& helper) {
    std::unique_lock lock{mutex_};
    for (;;) {
        changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
        if (ending_) return;
        drop_unwanted();
        if (waiting_.empty()) continue;
        const std::string hash = waiting_.front();
        waiting_.pop_front();
        const GrammarSpec spec = jobs_.at(hash).spec;
        ++compilations_;
        lock.unlock();
        const Result<CompiledGrammarPtr> result = helper.compile(spec);
        lock.lock();
        keep(hash, result);
        const std::vector<Wanted> wanted = std::move(jobs_.at(hash).wanted);
        jobs_.erase(hash);
        lock.unlock();
        for (const Wanted& each : wanted) {
            if (!has_left(each)) each.done(result);
        }
        lock.lock();
    }
}

const Result<CompiledGrammarPtr>* GrammarHelpers::find(const std::string& hash) {
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const Kept& kept) { return kept.hash == hash; });
    if (found == kept_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found);
    return &kept_.front().result;
}

void GrammarHelpers::keep(const std::string& hash, const Result<CompiledGrammarPtr>& result) {
    // A machine that could not start a process may be able to later; what is wrong with a grammar
    // stays.
    if (!result.ok() && result.error().code != Errc::BadArgument) return;
    constexpr std::size_t kEntryBytes = 256;
    const std::size_t bytes =
        kEntryBytes + (result.ok() ? result.value()->bytes.size() : result.error().what.size());
    kept_.push_front({hash, result, bytes});
    kept_bytes_ += bytes;
    while (kept_bytes_ > options_.kept_bytes && kept_.size() > 1) {
        kept_bytes_ -= kept_.back().bytes;
        kept_.pop_back();
    }
}

}  // namespace paceline
