#include "actors/conductor/request_table.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <set>
#include <string_view>
#include <utility>

#include "actors/decoding/grammar/grammar_store.hpp"
#include "ipc/base/faults.hpp"
#include "model/kv_layout.hpp"

namespace paceline {
namespace {

constexpr Position kGrowthMax = 4 * kKvPageSlots;  // that is kept free for one text

}  // namespace

std::string name_of(RequestId request) {
    return fmt::format("request {}", request.value);
}

Result<RequestId> RequestTable::accept(AnswerOrder order) {
    if (order.request.context == 0) order.request.context = context_;
    // Caches have whole pages only.
    const std::int32_t kv_slots = kv_slots_ / kKvPageSlots * kKvPageSlots;
    if (Status valid = validate(order.request, vocab_size_, kv_slots); !valid) return valid.error();

    const RequestId request{newest_.value + 1};
    const Result<Attempt> attempt = log_.open(request, std::exchange(order.request.text, {}));
    if (!attempt) return attempt.error();
    newest_ = request;
    RequestRecord& record = records_[request];
    const ScoreOptions scores = order.request.scores;
    record = {.phase = RequestPhase::Waiting,
              .turn = ++turns_,
              .order = std::move(order),
              .attempt = attempt.value(),
              .scores = {scores, static_cast<Position>(log_.text(request).size())},
              .length = log_.text(request).size()};
    return request;
}

void RequestTable::close(RequestId request) {
    const auto found = records_.find(request);
    if (found == records_.end() || found->second.phase != RequestPhase::Ended) return;
    records_.erase(found);
    log_.close(request);
}

RequestRecord* RequestTable::find(RequestId request) {
    const auto found = records_.find(request);
    return found == records_.end() ? nullptr : &found->second;
}

RequestRecord* RequestTable::find_open(RequestId request, std::uint64_t turn) {
    RequestRecord* found = find(request);
    if (found == nullptr || found->turn != turn) return nullptr;
    return found->phase == RequestPhase::Ended ? nullptr : found;
}

RequestRecord* RequestTable::find_running(RequestId request) {
    RequestRecord* found = find(request);
    return found != nullptr && found->phase == RequestPhase::Running ? found : nullptr;
}

std::vector<RequestId> RequestTable::in_phase(RequestPhase phase) const {
    std::vector<std::pair<std::uint64_t, RequestId>> found;
    for (const auto& [request, record] : records_) {
        if (record.phase == phase) found.emplace_back(record.turn, request);
    }
    std::sort(found.begin(), found.end());
    std::vector<RequestId> requests;
    for (const auto& [turn, request] : found) requests.push_back(request);
    return requests;
}

std::size_t RequestTable::open_count() const {
    return static_cast<std::size_t>(
        std::count_if(records_.begin(), records_.end(),
                      [](const auto& entry) { return entry.second.phase != RequestPhase::Ended; }));
}

/// Of the text as it is, and half of what it may still grow by: few answers are as long as they may
/// be, and those that begin together do not end together.
std::int32_t RequestTable::pages_of(RequestId request, const RequestRecord& record) const {
    const Request& wanted = record.order.request;
    const auto length = static_cast<Position>(log_.text(request).size());
    const auto answered = static_cast<std::int32_t>(log_.answer(request).size());
    Position left = wanted.context - length;
    if (wanted.max_tokens != kUnlimitedTokens) left = std::min(left, wanted.max_tokens - answered);
    const Position growth = std::clamp(left / 2, kKvPageSlots, kGrowthMax);
    return pages_for(std::min(length + growth, wanted.context));
}

bool RequestTable::fits(RequestId request) const {
    std::int32_t pages = 0;
    std::size_t grammars = 0;         // bytes that a stage's next incarnation gets at once
    std::set<std::string_view> sent;  // each of them once
    for (const auto& [id, record] : records_) {
        if (id != request && record.phase != RequestPhase::Running) continue;
        pages += pages_of(id, record);
        const CompiledGrammarPtr& grammar = record.order.request.compiled;
        if (grammar != nullptr && sent.insert(grammar->hash).second)
            grammars += grammar->bytes.size();
    }
    return pages <= kv_slots_ / kKvPageSlots && grammars <= kGrammarBytesKept;
}

/// A generation ends with the first Begin that says it, so the receiver of a later one knows
/// whether it has missed any.
void RequestTable::lose_keys(const LostKeys& lost) {
    if (std::exchange(generation_told_, false)) {
        ++cache_generation_;
        keys_lost_ = {};
    }
    keys_lost_.add(lost);
}

BeginPayload RequestTable::begin_of(RequestId request, const RequestRecord& record) {
    generation_told_ = true;
    BeginPayload spec{record.order.request};
    const std::span<const TokenId> text = log_.text(request);
    const std::size_t committed = log_.answer(request).size();
    const bool forget = planted(PlantedBug::ReplayForgetsCommitted);
    spec.text.assign(text.begin(),
                     text.end() - static_cast<std::ptrdiff_t>(forget ? committed : 0));
    const bool keep_count = !forget && !planted(PlantedBug::ReplayForgetsCount);
    spec.replayed = keep_count ? static_cast<std::int32_t>(committed) : 0;
    spec.cache_generation = cache_generation_;
    spec.keys_lost = keys_lost_;
    spec.acceptance = acceptance_;
    spec.scores = record.scores.wanted();
    return spec;
}

std::span<const TokenId> RequestTable::text(RequestId request) const {
    const auto found = records_.find(request);
    return found == records_.end() ? std::span<const TokenId>{}
                                   : log_.text(request).first(found->second.length);
}

}  // namespace paceline
