#include "actors/protocol/message_checks.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <optional>
#include <string>

#include "actors/protocol/counters.hpp"
#include "ipc/base/limits.hpp"
#include "model/kv_layout.hpp"

namespace paceline {
namespace {

Error bad(const std::string& message, const std::string& field, std::int64_t value) {
    return Error{Errc::Protocol, fmt::format("{} has {} = {}", message, field, value)};
}

bool within(std::int32_t value, std::int32_t end) {
    return value >= 0 && value < end;
}

Status check_tokens(const std::string& message,
                    std::span<const TokenId> tokens,
                    const MessageLimits& limits) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (!within(tokens[i], limits.vocab_size)) {
            return bad(message, fmt::format("tokens[{}]", i), tokens[i]);
        }
    }
    return {};
}

Status check_row(const msg::Batch& batch, std::uint32_t index, const MessageLimits& limits) {
    const msg::BatchRow& row = batch.rows[index];
    const std::string name = fmt::format("a batch's row {}", index);
    if (!within(row.token, limits.vocab_size)) return bad(name, "token", row.token);
    if (!within(row.position, limits.context)) return bad(name, "position", row.position);
    if (!within(row.slot, limits.kv_slots)) return bad(name, "slot", row.slot);
    if (row.tensor_row >= batch.tensor_rows) return bad(name, "tensor_row", row.tensor_row);
    if (row.start > limits.sublayers) return bad(name, "start", row.start);
    if (static_cast<std::uint16_t>(row.origin) >= msg::kOrigins)
        return bad(name, "origin", static_cast<std::int64_t>(row.origin));
    return {};
}

/// Drawn siblings and the distribution that they come from.
Status check_drawn(const std::string& name,
                   std::span<const msg::TokenWeight> support,
                   std::uint32_t drawn,
                   const MessageLimits& limits) {
    if (drawn == 0 || drawn > support.size()) return bad(name, "drawn", drawn);
    for (std::size_t i = 0; i < support.size(); ++i) {
        const auto [token, weight] = support[i];
        if (!within(token, limits.vocab_size)) return bad(name, fmt::format("token {}", i), token);
        if (!std::isfinite(weight) || weight <= 0.0F) {
            return Error{Errc::Protocol, fmt::format("{} has weight {} = {}", name, i, weight)};
        }
        const auto before = support.first(i);
        if (std::any_of(before.begin(), before.end(),
                        [&](const msg::TokenWeight& other) { return other.token == token; })) {
            return Error{Errc::Protocol, fmt::format("{} has token {} twice", name, token)};
        }
    }
    return {};
}

/// The draws of a batch: each of a row of its own, and all tokens belong to one.
Status check_draws(const msg::Batch& batch, const MessageLimits& limits) {
    std::span<const msg::TokenWeight> left{batch.drawn_tokens};
    for (std::size_t i = 0; i < batch.draws.size(); ++i) {
        const auto [row, support, drawn] = batch.draws[i];
        const std::string name = fmt::format("a batch's draw {}", i);
        if (row >= batch.rows.size() || (i > 0 && row <= batch.draws[i - 1].row)) {
            return bad(name, "row", row);
        }
        if (support == 0 || support > kDrawnSupportMax || support > left.size()) {
            return bad(name, "support", support);
        }
        if (Status ok = check_drawn(name, left.first(support), drawn, limits); !ok) return ok;
        left = left.subspan(support);
    }
    if (left.empty()) return {};
    return bad("a batch", "drawn tokens without a draw", static_cast<std::int64_t>(left.size()));
}

/// A probability may be out of range (the dispatcher clamps it), but not NaN.
Status check_node(const msg::ProposedNode& node, std::uint32_t index, const MessageLimits& limits) {
    const std::string name = fmt::format("a proposal's node {}", index);
    if (!within(node.token, limits.vocab_size)) return bad(name, "token", node.token);
    if (node.parent < msg::kBelowRoot || node.parent >= static_cast<std::int64_t>(index)) {
        return bad(name, "parent", node.parent);
    }
    if (static_cast<std::uint16_t>(node.origin) >= msg::kOrigins) {
        return bad(name, "origin", static_cast<std::int64_t>(node.origin));
    }
    if (std::isnan(node.log_prob)) return Error{Errc::Protocol, name + " has log_prob = nan"};
    return {};
}

/// `rows_left`: of the batch, for this part and those after it.
Status check_part(std::span<const msg::BatchPart> parts,
                  std::uint32_t index,
                  std::uint32_t rows_left,
                  const MessageLimits& limits) {
    const msg::BatchPart& part = parts[index];
    const std::string name = fmt::format("a batch's part {}", index);
    if (part.kind != msg::BatchKind::Prefill && part.kind != msg::BatchKind::Verify) {
        return bad(name, "kind", static_cast<std::int64_t>(part.kind));
    }
    if (!within(part.base, limits.context)) return bad(name, "base", part.base);
    if (part.rows == 0 || part.rows > rows_left) return bad(name, "rows", part.rows);
    if (part.hold > 1) return bad(name, "hold", part.hold);
    if (part.last.value != 0 && part.kind != msg::BatchKind::Prefill)
        return bad(name, "last", part.last.value);
    for (std::uint32_t i = 0; i < index; ++i) {
        if (parts[i].request != part.request) continue;
        return Error{Errc::Protocol, fmt::format("{} has request = {}, which part {} has already",
                                                 name, part.request.value, i)};
    }
    return {};
}

}  // namespace

Status check_message(const msg::Proposal& proposal, const MessageLimits& limits) {
    const std::string name = "a proposal";
    if (proposal.count > kProposalNodesMax) return bad(name, "count", proposal.count);
    if (proposal.state > msg::ProposalState::Complete) {
        return bad(name, "state", static_cast<std::int64_t>(proposal.state));
    }
    if (!within(proposal.root_position, limits.context)) {
        return bad(name, "root_position", proposal.root_position);
    }
    if (!within(proposal.root_token, limits.vocab_size)) {
        return bad(name, "root_token", proposal.root_token);
    }
    for (std::uint32_t i = 0; i < proposal.count; ++i) {
        if (Status node = check_node(proposal.nodes[i], i, limits); !node) return node;
    }
    return {};
}

Status check_message(const msg::Prefix& prefix, const MessageLimits& limits) {
    const std::string name = "a cached prefix";
    if (prefix.count == 0 || prefix.count > msg::kPrefixPagesMax)
        return bad(name, "count", prefix.count);
    const std::int32_t pages = limits.kv_slots / kKvPageSlots;
    if (prefix.first_block > static_cast<std::uint32_t>(pages) ||
        prefix.first_block + prefix.count > static_cast<std::uint32_t>(pages)) {
        return bad(name, "first_block", prefix.first_block);
    }
    if (!within(prefix.matched, limits.context + 1)) return bad(name, "matched", prefix.matched);
    for (const std::int32_t page : std::span{prefix.pages}.first(prefix.count)) {
        if (!within(page, pages)) return bad(name, "page", page);
    }
    return {};
}

Status check_message(const msg::Scores& scores, const MessageLimits& limits) {
    const std::string name = "scores";
    if (scores.top > static_cast<std::uint32_t>(kTopScoresMax)) return bad(name, "top", scores.top);
    if (scores.tokens == 0 || scores.tokens > msg::kScoreEntriesMax / (1 + scores.top))
        return bad(name, "tokens", scores.tokens);
    if (!within(scores.first, limits.context)) return bad(name, "first", scores.first);
    for (const msg::ScoreEntry& entry :
         std::span{scores.entries}.first(std::size_t{scores.tokens} * (1 + scores.top))) {
        // Ranks and tokens have the same range.
        if (!within(entry.value, limits.vocab_size)) return bad(name, "value", entry.value);
        if (!(entry.log_prob <= 0.0f)) {
            return Error{Errc::Protocol, fmt::format("scores have log_prob = {}", entry.log_prob)};
        }
    }
    return {};
}

Status check_message(const msg::OwnTokens& own, const MessageLimits& limits) {
    const std::string name = "own tokens";
    if (!within(own.root_position, limits.context))
        return bad(name, "root_position", own.root_position);
    if (!within(own.root_token, limits.vocab_size)) return bad(name, "root_token", own.root_token);
    if (own.count == 0 || own.count > msg::kOwnTokensMax) return bad(name, "count", own.count);
    for (const msg::OwnToken& each : std::span{own.tokens}.first(own.count)) {
        if (each.node == 0 || each.node > std::numeric_limits<std::uint8_t>::max())
            return bad(name, "node", each.node);
        if (!within(each.token, limits.vocab_size)) return bad(name, "token", each.token);
    }
    return {};
}

Status check_message(const msg::Draw& draw, const MessageLimits& limits) {
    const std::string name = "a draw";
    if (!within(draw.root_position, limits.context)) {
        return bad(name, "root_position", draw.root_position);
    }
    if (!within(draw.root_token, limits.vocab_size)) {
        return bad(name, "root_token", draw.root_token);
    }
    if (draw.depth > kGammaMax) return bad(name, "depth", draw.depth);
    if (draw.support == 0 || draw.support > kDrawnSupportMax) {
        return bad(name, "support", draw.support);
    }
    if (Status path = check_tokens(name, std::span{draw.path}.first(draw.depth), limits); !path) {
        return path;
    }
    return check_drawn(name, std::span{draw.tokens}.first(draw.support), draw.drawn, limits);
}

Status check_message(const msg::Price& price) {
    const std::string name = "a price";
    if (price.mode > msg::SpeculationMode::Rest)
        return bad(name, "mode", static_cast<std::int64_t>(price.mode));
    const auto check = [&](const char* field, float value, float most) -> Status {
        if (std::isfinite(value) && value >= 0.0F && value <= most) return {};
        return Error{Errc::Protocol, fmt::format("{} has {} = {}", name, field, value)};
    };
    constexpr float kMicrosMax = 1e12F;
    if (Status ok = check("token_us", price.token_us, kMicrosMax); !ok) return ok;
    if (Status ok = check("plain_us", price.plain_us, kMicrosMax); !ok) return ok;
    if (Status ok = check("row_us", price.row_us, kMicrosMax); !ok) return ok;
    if (Status ok = check("extra_us", price.extra_us, kMicrosMax); !ok) return ok;
    return check("pass_share", price.pass_share, 1.0F);
}

Status check_message(const msg::Batch& batch, const MessageLimits& limits) {
    const std::string name = "a batch";
    const std::size_t row_count = batch.rows.size();
    const std::size_t part_count = batch.parts.size();
    if (row_count == 0 || row_count > limits.batch_rows) {
        return bad(name, "row_count", static_cast<std::int64_t>(row_count));
    }
    if (batch.tensor_rows < row_count || batch.tensor_rows > limits.batch_rows) {
        return bad(name, "tensor_rows", batch.tensor_rows);
    }
    if (part_count == 0 || part_count > kBatchPartsMax) {
        return bad(name, "part_count", static_cast<std::int64_t>(part_count));
    }
    std::uint32_t rows = 0;
    std::uint32_t verify_rows = 0;
    for (std::uint32_t i = 0; i < part_count; ++i) {
        const auto left = static_cast<std::uint32_t>(row_count) - rows;
        if (Status part = check_part(batch.parts, i, left, limits); !part) return part;
        rows += batch.parts[i].rows;
        if (batch.parts[i].kind == msg::BatchKind::Verify) verify_rows += batch.parts[i].rows;
    }
    if (rows != row_count) {
        return Error{
            Errc::Protocol,
            fmt::format("a batch has row_count = {}, but its parts have {}", row_count, rows)};
    }
    if (verify_rows > kVerifyRowsMax) return bad(name, "verify rows", verify_rows);
    for (std::uint32_t i = 0; i < row_count; ++i) {
        if (Status row = check_row(batch, i, limits); !row) return row;
    }
    return check_draws(batch, limits);
}

Status check_message(const msg::TensorNote& note, const TensorLimits& limits) {
    const std::string name = "a tensor note";
    if (note.role > msg::TensorRole::Features) {
        return bad(name, "role", static_cast<std::int64_t>(note.role));
    }
    if (msg::element_bytes(note.type) == 0) {
        return bad(name, "type", static_cast<std::int64_t>(note.type));
    }
    if (note.layer >= limits.layers) return bad(name, "layer", note.layer);
    if (!within(note.first_position, limits.context)) {
        return bad(name, "first_position", note.first_position);
    }
    const auto positions_left = static_cast<std::uint32_t>(limits.context - note.first_position);
    if (note.rows == 0 || note.rows > positions_left) return bad(name, "rows", note.rows);
    if (note.row_elements == 0) return bad(name, "row_elements", 0);
    const std::optional<std::uint64_t> bytes = msg::tensor_bytes(note);
    if (bytes && *bytes <= limits.slot_bytes) return {};
    return Error{
        Errc::Protocol,
        fmt::format("{} has rows = {} and row_elements = {}, more than the {} bytes of a slot",
                    name, note.rows, note.row_elements, limits.slot_bytes)};
}

Status check_message(const msg::Verdict& verdict, const MessageLimits& limits) {
    if (verdict.finish > FinishReason::GrammarFailed) {
        return bad("a verdict", "finish", static_cast<std::int64_t>(verdict.finish));
    }
    // Only a row for which no token could be drawn commits nothing.
    const bool failed =
        verdict.finish == FinishReason::Failed || verdict.finish == FinishReason::GrammarFailed;
    if (verdict.count > kGammaMax + 1 || (verdict.count == 0 && !failed)) {
        return bad("a verdict", "count", verdict.count);
    }
    if (verdict.batch_rows > kVerifyRowsMax)
        return bad("a verdict", "batch_rows", verdict.batch_rows);
    if (verdict.depth > kGammaMax || (verdict.depth > 0 && verdict.depth >= verdict.batch_rows)) {
        return bad("a verdict", "depth", verdict.depth);
    }
    if (!within(verdict.base, limits.context)) return bad("a verdict", "base", verdict.base);
    if (!within(verdict.cached, verdict.base + 1))
        return bad("a verdict", "cached", verdict.cached);
    if (!within(verdict.matched, limits.context))
        return bad("a verdict", "matched", verdict.matched);
    for (std::uint32_t i = 0; i + 1 < verdict.count; ++i) {
        if (static_cast<std::uint16_t>(verdict.origins[i]) >= msg::kOrigins) {
            return bad("a verdict", fmt::format("origins[{}]", i),
                       static_cast<std::int64_t>(verdict.origins[i]));
        }
    }
    return check_tokens("a verdict", std::span{verdict.tokens}.first(verdict.count), limits);
}

void count_fenced(Context& context, StageId from, std::uint16_t kind, const msg::Route& route) {
    context.count(counters::kFenced);
    context.trace({.kind = TraceKind::Fenced,
                   .peer = from,
                   .request = route.request,
                   .attempt = route.attempt,
                   .detail = kind});
}

}  // namespace paceline
