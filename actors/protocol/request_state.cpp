#include "actors/protocol/request_state.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

RequestState::RequestState(RequestId request, Attempt attempt, BeginPayload spec, TreeRole role)
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
    tree_.plant(text_.back(), static_cast<Position>(text_.size()) - 1);
}

void RequestState::follow_grammar(GrammarLoader& loader) {
    if (spec_.compiled == nullptr) return;
    grammar_ = std::make_unique<AnswerGrammar>(loader, spec_.compiled, spec_.end_tokens,
                                               finish_rule_.answer_begin);
}

bool RequestState::wants(std::span<const msg::BatchRow> rows) const {
    return !over() && std::any_of(rows.begin(), rows.end(), [this](const msg::BatchRow& row) {
        return tree_.find(row.node) != nullptr;
    });
}

Status RequestState::take_prefix(std::size_t first_block,
                                 std::span<const std::int32_t> pages,
                                 Position matched) {
    const std::size_t first = first_block * kKvPageSlots;
    const std::size_t end = first + pages.size() * kKvPageSlots;
    if (first != slots_.size() || first != static_cast<std::size_t>(cached_) ||
        end >= spec_.text.size()) {
        return Error{Errc::Protocol,
                     fmt::format("a cached prefix has positions {} to {}, but {} is next and the "
                                 "text has {}",
                                 first, end, slots_.size(), spec_.text.size())};
    }
    for (const std::int32_t page : pages) {
        for (KvSlot slot = page * kKvPageSlots; slot < (page + 1) * kKvPageSlots; ++slot)
            slots_.push_back(slot);
    }
    cached_ = static_cast<Position>(end);
    matched_ = matched;
    return {};
}

Status RequestState::take_prefill(Position base, std::span<const msg::BatchRow> rows) {
    if (base != static_cast<Position>(slots_.size())) {
        return Error{Errc::Protocol,
                     fmt::format("a prefill part begins at position {}, but {} is next", base,
                                 slots_.size())};
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
