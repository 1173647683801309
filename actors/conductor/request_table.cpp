#include "actors/conductor/request_table.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "actors/protocol/request_state.hpp"
#include "ipc/base/faults.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

std::string name_of(RequestId request) {
    return fmt::format("request {}", request.value);
}

/// Puts the text of the turn before in front of what is appended to it.
Status RequestTable::complete_text(AnswerOrder& order) const {
    if (!order.continues) return {};
    const auto before = records_.find(*order.continues);
    if (before == records_.end() || before->second.phase != RequestPhase::Ended) {
        return Error{Errc::BadArgument,
                     name_of(*order.continues) + " cannot be continued: it is unknown or not over"};
    }
    const std::span<const TokenId> so_far = text(*order.continues);
    order.request.text.insert(order.request.text.begin(), so_far.begin(), so_far.end());
    return {};
}

Result<RequestId> RequestTable::accept(AnswerOrder order) {
    if (Status complete = complete_text(order); !complete) return complete.error();
    if (order.request.context == 0) order.request.context = context_;
    // Caches have whole pages only.
    const std::int32_t kv_slots = kv_slots_ / kKvPageSlots * kKvPageSlots;
    if (Status valid = validate(order.request, vocab_size_, kv_slots); !valid) return valid.error();

    const RequestId request = order.continues.value_or(RequestId{newest_.value + 1});
    std::vector<TokenId> text = std::exchange(order.request.text, {});
    const Result<Attempt> attempt = order.continues ? log_.extend(request, std::move(text))
                                                    : log_.open(request, std::move(text));
    if (!attempt) return attempt.error();
    newest_ = std::max(newest_, request);
    RequestRecord& record = records_[request];
    // Stages forget old requests, and the cache layout depends on the context.
    const bool held = record.order.request.context == order.request.context &&
                      turns_ - record.turn < kReuseTurnsMax;
    record = {.phase = RequestPhase::Waiting,
              .turn = ++turns_,
              .order = std::move(order),
              .attempt = attempt.value(),
              .length = log_.text(request).size(),
              .held = held ? record.held : 0};
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

bool RequestTable::fits(const RequestRecord& record) const {
    std::int32_t pages = pages_for(record.order.request.context);
    for (const auto& [request, other] : records_) {
        if (other.phase == RequestPhase::Running) pages += pages_for(other.order.request.context);
    }
    return pages <= kv_slots_ / kKvPageSlots;
}

void RequestTable::drop_held() {
    for (auto& [request, record] : records_) record.held = 0;
}

BeginPayload RequestTable::begin_of(RequestId request, const RequestRecord& record) const {
    BeginPayload spec{record.order.request};
    const std::span<const TokenId> text = log_.text(request);
    const std::size_t committed = log_.answer(request).size();
    const bool forget = planted(PlantedBug::ReplayForgetsCommitted);
    spec.text.assign(text.begin(),
                     text.end() - static_cast<std::ptrdiff_t>(forget ? committed : 0));
    const bool keep_count = !forget && !planted(PlantedBug::ReplayForgetsCount);
    spec.replayed = keep_count ? static_cast<std::int32_t>(committed) : 0;
    // The last token of the text is the root: it is fed with the first batch, so never reused.
    spec.reuse = std::min(record.held, static_cast<std::int32_t>(spec.text.size()) - 1);
    spec.acceptance = acceptance_;
    return spec;
}

std::span<const TokenId> RequestTable::text(RequestId request) const {
    const auto found = records_.find(request);
    return found == records_.end() ? std::span<const TokenId>{}
                                   : log_.text(request).first(found->second.length);
}

}  // namespace paceline
