#include "actors/message_checks.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

Error bad(const std::string& message, const std::string& field, std::int64_t value) {
    return Error{Errc::Protocol, message + " has " + field + " = " + std::to_string(value)};
}

bool within(std::int32_t value, std::int32_t end) {
    return value >= 0 && value < end;
}

Status check_tokens(const std::string& message,
                    std::span<const TokenId> tokens,
                    const MessageLimits& limits) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (!within(tokens[i], limits.vocab_size)) {
            return bad(message, "tokens[" + std::to_string(i) + "]", tokens[i]);
        }
    }
    return {};
}

Status check_row(const msg::WaveRow& row, std::uint32_t index, const MessageLimits& limits) {
    const std::string name = "a wave's row " + std::to_string(index);
    if (!within(row.token, limits.vocab_size)) return bad(name, "token", row.token);
    if (!within(row.position, limits.context)) return bad(name, "position", row.position);
    if (!within(row.slot, limits.kv_slots)) return bad(name, "slot", row.slot);
    return {};
}

}  // namespace

Status check_message(const msg::Proposal& proposal, const MessageLimits& limits) {
    if (proposal.count > kGammaMax) return bad("a proposal", "count", proposal.count);
    if (!within(proposal.root_position, limits.context)) {
        return bad("a proposal", "root_position", proposal.root_position);
    }
    if (!within(proposal.root_token, limits.vocab_size)) {
        return bad("a proposal", "root_token", proposal.root_token);
    }
    return check_tokens("a proposal", std::span{proposal.tokens}.first(proposal.count), limits);
}

Status check_message(const msg::Wave& wave, const MessageLimits& limits) {
    if (wave.kind != msg::WaveKind::Prefill && wave.kind != msg::WaveKind::Verify) {
        return bad("a wave", "kind", static_cast<std::int64_t>(wave.kind));
    }
    if (wave.row_count == 0 || wave.row_count > kWaveRowsMax) {
        return bad("a wave", "row_count", wave.row_count);
    }
    if (!within(wave.base, limits.context)) return bad("a wave", "base", wave.base);
    for (std::uint32_t i = 0; i < wave.row_count; ++i) {
        if (Status row = check_row(wave.rows[i], i, limits); !row) return row;
    }
    return {};
}

Status check_message(const msg::TensorNote& note, const TensorLimits& limits) {
    const std::string name = "a tensor note";
    if (note.role > msg::TensorRole::Tap) {
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
    return Error{Errc::Protocol, name + " has rows = " + std::to_string(note.rows) +
                                     " and row_elements = " + std::to_string(note.row_elements) +
                                     ", more than the " + std::to_string(limits.slot_bytes) +
                                     " bytes of a slot"};
}

Status check_message(const msg::Verdict& verdict, const MessageLimits& limits) {
    if (verdict.finish > msg::Finish::Failed) {
        return bad("a verdict", "finish", static_cast<std::int64_t>(verdict.finish));
    }
    // Only a row for which no token could be drawn commits nothing.
    if (verdict.count > kGammaMax + 1 ||
        (verdict.count == 0 && verdict.finish != msg::Finish::Failed)) {
        return bad("a verdict", "count", verdict.count);
    }
    if (verdict.wave_rows > kWaveRowsMax) return bad("a verdict", "wave_rows", verdict.wave_rows);
    if (!within(verdict.base, limits.context)) return bad("a verdict", "base", verdict.base);
    return check_tokens("a verdict", std::span{verdict.tokens}.first(verdict.count), limits);
}

void count_fenced(Context& context, StageId from, std::uint16_t kind, const msg::Route& route) {
    context.count(Counter::Fenced);
    context.trace({.kind = TraceKind::Fenced,
                   .peer = from,
                   .request = route.request,
                   .attempt = route.attempt,
                   .detail = kind});
}

}  // namespace paceline
