#include "actors/conductor/commit_log.hpp"

#include <fmt/core.h>
#include <utility>

#include "ipc/base/faults.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {

Result<Attempt> CommitLog::open(RequestId request, std::vector<TokenId> prompt) {
    if (entries_.contains(request)) {
        return Error{Errc::BadArgument, fmt::format("request {} is open already", request.value)};
    }
    if (entries_.size() >= kRequestsMax) {
        return Error{Errc::BadArgument, fmt::format("there are {} requests already", kRequestsMax)};
    }
    Entry& entry = entries_[request];
    entry.attempt = Attempt{1};
    entry.prompt_tokens = prompt.size();
    entry.text = std::move(prompt);
    return entry.attempt;
}

Result<Attempt> CommitLog::restart(RequestId request) {
    const auto found = entries_.find(request);
    if (found == entries_.end()) {
        return Error{Errc::BadArgument, fmt::format("request {} is unknown", request.value)};
    }
    if (!planted(PlantedBug::AttemptNotRaised)) ++found->second.attempt.value;
    return found->second.attempt;
}

void CommitLog::close(RequestId request) {
    entries_.erase(request);
}

Commit CommitLog::commit(const msg::Verdict& verdict) {
    const auto found = entries_.find(verdict.route.request);
    if (found == entries_.end()) return {};
    Entry& entry = found->second;
    const bool old = verdict.route.attempt != entry.attempt;
    if (old && !planted(PlantedBug::CommitIgnoresAttempt)) return {};
    if (entry.finish != FinishReason::None) return {};
    const auto next = static_cast<Position>(entry.text.size());
    if (verdict.base < next && !planted(PlantedBug::CommitIgnoresPosition)) return {};
    if (verdict.base > next || verdict.count > verdict.tokens.size()) {
        return {.kind = CommitKind::Gap, .tokens = {}, .finish = FinishReason::None};
    }
    const std::span tokens{verdict.tokens.data(), verdict.count};
    entry.text.insert(entry.text.end(), tokens.begin(), tokens.end());
    entry.finish = verdict.finish;
    return {.kind = CommitKind::Counts,
            .tokens = std::span<const TokenId>{entry.text}.last(verdict.count),
            .finish = verdict.finish};
}

std::span<const TokenId> CommitLog::text(RequestId request) const {
    const auto found = entries_.find(request);
    return found == entries_.end() ? std::span<const TokenId>{} : found->second.text;
}

std::span<const TokenId> CommitLog::answer(RequestId request) const {
    const auto found = entries_.find(request);
    if (found == entries_.end()) return {};
    return std::span<const TokenId>{found->second.text}.subspan(found->second.prompt_tokens);
}

}  // namespace paceline
