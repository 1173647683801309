#include "model/weights/huggingface/piece_pipeline.hpp"

#include <algorithm>
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/weights/huggingface/json_keys.hpp"
#include "model/weights/huggingface/pipeline_parts.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

using nlohmann::json;

constexpr const char* kSpace = "\xE2\x96\x81";  // U+2581

// A few replacements of one byte by many would make gigabytes of a short text.
constexpr std::size_t kStepsMax = 16;
constexpr std::size_t kStepBytesMax = 64;  // of either text of a step
constexpr std::size_t kGrowthMax = 32;     // of a text by all steps together

/// One part of the normalizer as a step; false: it is none that is known.
bool read_step(const json& part, std::vector<TextStep>& steps) {
    const std::string type = type_of(part);
    if (type == "NFC") {
        steps.push_back({TextStep::Kind::NormalFormC, "", ""});
        return true;
    }
    if (type == "Prepend") {
        steps.push_back({TextStep::Kind::Prepend, "", text_or_empty(member(part, "prepend"))});
        return member(part, "prepend").is_string();
    }
    const std::string from = text_or_empty(member(member(part, "pattern"), "String"));
    const json& content = member(part, "content");
    if (type != "Replace" || from.empty() || !content.is_string()) return false;
    steps.push_back({TextStep::Kind::Replace, from, content.get<std::string>()});
    return true;
}

/// How many times longer a text may become by `step`, but for a text in front of it.
std::size_t growth_of(const TextStep& step) {
    switch (step.kind) {
        case TextStep::Kind::NormalFormC:
            return 3;  // U+1D160 and its like: one character of 4 bytes becomes three
        case TextStep::Kind::Prepend:
            return 1;
        case TextStep::Kind::Replace:
            return std::max<std::size_t>(
                1, (step.to.size() + step.from.size() - 1) / step.from.size());
    }
    return 1;
}

/// Why the steps are too much to ask for; empty: they are not.
std::string refused_steps(const std::vector<TextStep>& steps) {
    const auto no = [](const std::string& what) {
        return "tokenizer.json: a normalizer " + what + " is not supported";
    };
    if (steps.size() > kStepsMax)
        return no(fmt::format("of {} steps (more than {})", steps.size(), kStepsMax));
    std::size_t growth = 1;
    for (const TextStep& step : steps) {
        const std::size_t bytes = std::max(step.from.size(), step.to.size());
        if (bytes > kStepBytesMax)
            return no(fmt::format("with a text of {} bytes (more than {})", bytes, kStepBytesMax));
        growth *= growth_of(step);
        if (growth > kGrowthMax)
            return no(fmt::format("that may make a text more than {} times longer", kGrowthMax));
    }
    return {};
}

/// Metaspace, of this version of the library or of one that knew add_prefix_space.
bool read_metaspace(const json& part, PieceRules& rules) {
    if (type_of(part) != "Metaspace" || member(part, "replacement") != kSpace) return false;
    rules.metaspace = true;
    const json& split = member(part, "split");
    rules.cut_at_spaces = split.is_null() || is_true(split);
    const json& old = member(part, "add_prefix_space");
    std::string scheme = text_or_empty(member(part, "prepend_scheme"));
    if (scheme.empty()) scheme = old.is_null() || is_true(old) ? "always" : "never";
    if (scheme == "always") rules.prefix = PieceRules::Prefix::Always;
    if (scheme == "first") rules.prefix = PieceRules::Prefix::First;
    return scheme == "always" || scheme == "first" || scheme == "never";
}

/// A cut at spaces that the normalizer has left none of.
bool cuts_nothing(const json& part, const PieceRules& rules) {
    const bool at_spaces =
        type_of(part) == "Split" && member(member(part, "pattern"), "String") == " ";
    return at_spaces && !rules.steps.empty() && rules.steps.back().from == " " &&
           rules.steps.back().to.find(' ') == std::string::npos;
}

void read_pre_tokenizer(const json& root, PiecePipeline& out) {
    for (const json* part : parts_of(member(root, "pre_tokenizer"), "pretokenizers")) {
        if (!out.rules.metaspace && read_metaspace(*part, out.rules)) continue;
        if (cuts_nothing(*part, out.rules)) continue;
        out.refusal = refused_part("pre_tokenizer", *part);
        return;
    }
}

/// How far on its way a part of the decoder stands: 0 is none that is known.
int stage_of(const json& part) {
    const std::string type = type_of(part);
    if (type == "Metaspace") return member(part, "replacement") == kSpace ? 1 : 0;
    if (type == "Replace")
        return member(member(part, "pattern"), "String") == kSpace && member(part, "content") == " "
                   ? 1
                   : 0;
    if (type == "ByteFallback") return 2;
    if (type == "Fuse") return 3;
    const bool strips_first = type == "Strip" && member(part, "content") == " " &&
                              member(part, "start") == 1 && member(part, "stop") == 0;
    return strips_first ? 4 : 0;
}

/// Spaces, then bytes, then the whole text: another order would be other text.
void read_decoder(const json& root, PiecePipeline& out) {
    const json& decoder = member(root, "decoder");
    int stage = 0;
    bool fused = false, spaces = false;
    for (const json* part : parts_of(decoder, "decoders")) {
        const int next = stage_of(*part);
        if (next <= stage || (next == 4 && !fused)) {
            out.refusal = refused_part("decoder", *part);
            return;
        }
        stage = next;
        spaces = spaces || next == 1;
        fused = fused || next == 3;
        out.decodes_bytes = out.decodes_bytes || next == 2;
        PieceRules before;
        const bool metaspace = type_of(*part) == "Metaspace" && read_metaspace(*part, before) &&
                               before.prefix != PieceRules::Prefix::Never;
        out.rules.drops_space = out.rules.drops_space || metaspace || next == 4;
    }
    if (!spaces) out.refusal = "tokenizer.json: a decoder that leaves U+2581 is not supported";
}

}  // namespace

PiecePipeline recognise_pieces(const json& tokenizer) {
    PiecePipeline out;
    for (const json* part : parts_of(member(tokenizer, "normalizer"), "normalizers")) {
        if (read_step(*part, out.rules.steps)) continue;
        out.refusal = refused_part("normalizer", *part);
        return out;
    }
    out.refusal = refused_steps(out.rules.steps);
    if (!out.refusal.empty()) return out;
    read_pre_tokenizer(tokenizer, out);
    if (out.refusal.empty()) read_decoder(tokenizer, out);
    return out;
}

}  // namespace paceline::huggingface
