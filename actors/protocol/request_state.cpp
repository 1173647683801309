#include "actors/protocol/request_state.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {

RequestState::RequestState(RequestId request,
                           Attempt attempt,
                           BeginPayload spec,
                           TreeRole role,
                           const RequestState* before)
    : request_{request},
      attempt_{attempt},
      spec_{std::move(spec)},
      finish_rule_{spec_.finish_rule()},
      tree_{role, kTreeNodesMax} {
    const auto context = static_cast<std::size_t>(spec_.context);
    PACE_CHECK(!spec_.text.empty() && spec_.text.size() <= context, "a request that is not valid");
    text_.reserve(context);
    text_ = spec_.text;
    slots_.reserve(context);
    if (spec_.reuse > 0) {
        const auto reuse = static_cast<std::size_t>(spec_.reuse);
        PACE_CHECK(before != nullptr && before->slots_.size() >= reuse,
                   "slots reused that are not there");
        slots_.assign(before->slots_.begin(), before->slots_.begin() + spec_.reuse);
    }
    tree_.plant(text_.back(), static_cast<Position>(text_.size()) - 1);
}

bool RequestState::wants(std::span<const msg::BatchRow> rows) const {
    return !over() && std::any_of(rows.begin(), rows.end(), [this](const msg::BatchRow& row) {
        return tree_.find(row.node) != nullptr;
    });
}

Status RequestState::take_prefill(Position base, std::span<const msg::BatchRow> rows) {
    const bool undecided = text_.size() == spec_.text.size() && !tree_.root().sent();
    if (undecided && base >= 0 && static_cast<std::size_t>(base) < slots_.size()) {
        slots_.resize(static_cast<std::size_t>(base));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const msg::BatchRow& row = rows[i];
        const std::size_t position = slots_.size() + i;
        if (position + 1 >= text_.size() || row.position != static_cast<Position>(position) ||
            row.token != text_[position]) {
            return Error{
                Errc::Protocol,
                fmt::format(
                    "prefill row {} brings token {} at position {}, but position {} of {} is next",
                    i, row.token, row.position, position, text_.size())};
        }
    }
    for (const msg::BatchRow& row : rows) slots_.push_back(row.slot);
    return {};
}

Status RequestState::take_rows(std::span<const msg::BatchRow> rows,
                               std::span<const DrawnSiblingsPtr> drawn_below) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Result<Adoption> adopted =
            tree_.adopt(rows[i], drawn_below.empty() ? nullptr : drawn_below[i]);
        if (!adopted) return adopted.error();
    }
    return {};
}

Result<TreeUpdate> RequestState::apply(const msg::Verdict& verdict) {
    if (verdict.base != static_cast<Position>(text_.size())) {
        return Error{Errc::Protocol,
                     fmt::format("a verdict commits from position {}, but the text has {} tokens",
                                 verdict.base, text_.size())};
    }
    if (text_.size() + verdict.count > static_cast<std::size_t>(spec_.context)) {
        return Error{
            Errc::Protocol,
            fmt::format("a verdict commits {} tokens after {}, more than the context of {}",
                        verdict.count, text_.size(), spec_.context)};
    }
    TreeUpdate step;
    if (verdict.count > 0) {  // 0: nothing could be drawn
        const std::span accepted{verdict.nodes.data(), verdict.count - 1};
        Result<TreeUpdate> applied = tree_.apply(accepted, verdict.tokens[verdict.count - 1]);
        if (!applied) return applied;
        step = std::move(applied).value();
    }
    for (const TreeNode& node : step.committed) slots_.push_back(node.slot);
    text_.insert(text_.end(), verdict.tokens.begin(), verdict.tokens.begin() + verdict.count);
    finish_ = verdict.finish;
    if (finish_ != FinishReason::None) {
        // The answer is over: what is proposed below its last token will never be asked.
        for (const TreeNode& node : tree_.nodes()) {
            if (node.sent()) step.dropped.push_back(node);
        }
        step.prepared = false;
        tree_.plant(text_.back(), static_cast<Position>(text_.size()) - 1);
    }
    return step;
}

}  // namespace paceline
