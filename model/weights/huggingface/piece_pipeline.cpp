#include "model/weights/huggingface/piece_pipeline.hpp"

#include <nlohmann/json.hpp>

#include "model/weights/huggingface/pipeline_parts.hpp"
#include "model/weights/text_step_limits.hpp"

namespace paceline::huggingface {
namespace {

using nlohmann::json;

constexpr const char* kSpace = "\xE2\x96\x81";  // U+2581

/// One part of the normalizer as a step; false: it is none that is known.
bool read_step(const json& part, std::vector<TextStep>& steps) {
    const std::string type = type_of(part);
    if (type == "NFC" || type == "NFKC") {
        using Kind = TextStep::Kind;
        steps.push_back({type == "NFC" ? Kind::NormalFormC : Kind::NormalFormKC, "", ""});
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
    if (const std::string excess = excess_of(out.rules.steps); !excess.empty()) {
        out.refusal = "tokenizer.json: a normalizer " + excess + " is not supported";
        return out;
    }
    read_pre_tokenizer(tokenizer, out);
    if (out.refusal.empty()) read_decoder(tokenizer, out);
    return out;
}

}  // namespace paceline::huggingface
