#include "model/skip_set.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>
#include <optional>
#include <utility>

namespace paceline {
namespace {

constexpr int kRangeFrom = 3;  // so many layers in a row are written as "a-b"

Error refused(std::string_view part, std::string_view why) {
    return Error{Errc::BadArgument, fmt::format("skip set: \"{}\": {}", part, why)};
}

std::optional<int> number(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
    return value;
}

/// The text up to `mark`, which is taken off `rest` with the mark.
std::string_view take(std::string_view& rest, char mark) {
    const std::size_t at = rest.find(mark);
    const std::string_view part = rest.substr(0, at);
    rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
    return part;
}

/// "5" or "5-9" of the sub-layers 2l + `offset`.
Status add_range(SkipSet& set, std::string_view range, int offset) {
    const bool has_end = range.find('-') != std::string_view::npos;
    std::string_view rest = range;
    const std::optional<int> first = number(take(rest, '-'));
    const std::optional<int> last = has_end ? number(rest) : first;
    if (!first || !last) return refused(range, "wanted is a layer (4) or a range of layers (5-9)");
    if (*last < *first) return refused(range, "the range ends before it begins");
    if (*last >= set.layers()) {
        return refused(range, fmt::format("the model has {} layers, from 0", set.layers()));
    }
    for (int layer = *first; layer <= *last; ++layer) set.set(2 * layer + offset, true);
    return {};
}

std::string ranges(const SkipSet& set, int offset) {
    std::string text;
    const auto skips = [&](int layer) {
        return layer < set.layers() && set.skips(2 * layer + offset);
    };
    for (int layer = 0; layer < set.layers(); ++layer) {
        if (!skips(layer)) continue;
        int last = layer;
        while (skips(last + 1)) ++last;
        if (!text.empty()) text += ',';
        text += std::to_string(layer);
        if (last - layer + 1 >= kRangeFrom) {
            text += '-' + std::to_string(last);
            layer = last;
        }
    }
    return text;
}

/// Skips `count` sub-layers of `layers`: pairs, evenly spread, and the attention of one more if
/// odd.
void skip_evenly(SkipSet& set, const std::vector<int>& layers, int count) {
    const int wanted = (count + 1) / 2;
    const auto there = static_cast<int>(layers.size());
    for (int i = 0; i < wanted; ++i) {
        // The middle of the i-th of `wanted` equal parts.
        const auto at = static_cast<std::size_t>((2 * i + 1) * there / (2 * wanted));
        set.set(2 * layers[at], true);
        if (2 * i + 1 < count) set.set(2 * layers[at] + 1, true);
    }
}

}  // namespace

int skipped_of(double ratio, int skippable) {
    // 1e-9: a product such as 0.29 * 100 may come out just below the integer.
    const int least = ratio > 0.0 ? 1 : 0;
    return std::min(std::max(static_cast<int>(ratio * skippable + 1e-9), least), skippable);
}

SkipSet::SkipSet(int layers) : layers_{layers}, skipped_(static_cast<std::size_t>(layers) * 2) {}

SkipSet SkipSet::uniform(int layers, int count, int keep_first, int keep_last) {
    SkipSet set{layers};
    std::vector<int> odd;
    std::vector<int> even;
    for (int layer = keep_first; layer < layers - keep_last; ++layer) {
        (layer % 2 == 1 ? odd : even).push_back(layer);
    }
    const int of_odd = std::clamp(count, 0, 2 * static_cast<int>(odd.size()));
    const int of_even = std::clamp(count - of_odd, 0, 2 * static_cast<int>(even.size()));
    skip_evenly(set, odd, of_odd);
    skip_evenly(set, even, of_even);
    return set;
}

Result<SkipSet> SkipSet::parse(std::string_view text, int layers) {
    SkipSet set{layers};
    bool named[2] = {false, false};
    while (!text.empty()) {
        const std::string_view part = take(text, ' ');
        if (part.empty()) continue;
        std::string_view rest = part;
        const std::string_view kind = take(rest, ':');
        if (kind != "attn" && kind != "mlp") {
            return refused(part, "wanted is \"attn:\" or \"mlp:\" and a list of layers");
        }
        const int offset = kind == "mlp" ? 1 : 0;
        if (std::exchange(named[offset], true)) {
            return refused(part, fmt::format("\"{}:\" is given twice", kind));
        }
        if (rest.empty()) return refused(part, "the list of layers is empty");
        if (rest.back() == ',') return refused(part, "the list ends with a comma");
        while (!rest.empty()) {
            if (Status s = add_range(set, take(rest, ','), offset); !s) {
                return Error{s.error().code, fmt::format("{} (in \"{}\")", s.error().what, part)};
            }
        }
    }
    return set;
}

bool SkipSet::skips(int sublayer) const {
    PACE_CHECK(sublayer >= 0 && sublayer < 2 * layers_, "a sub-layer that does not exist");
    return skipped_[static_cast<std::size_t>(sublayer)];
}

void SkipSet::set(int sublayer, bool skipped) {
    PACE_CHECK(sublayer >= 0 && sublayer < 2 * layers_, "a sub-layer that does not exist");
    skipped_[static_cast<std::size_t>(sublayer)] = skipped;
}

void SkipSet::skip_layer(int layer) {
    set(2 * layer, true);
    set(2 * layer + 1, true);
}

int SkipSet::count() const {
    return static_cast<int>(std::count(skipped_.begin(), skipped_.end(), true));
}

int SkipSet::first_skipped() const {
    return static_cast<int>(std::find(skipped_.begin(), skipped_.end(), true) - skipped_.begin());
}

SublayerMask SkipSet::mask() const {
    SublayerMask mask;
    for (int sublayer = 0; sublayer < 2 * layers_; ++sublayer) {
        if (skips(sublayer)) mask.skip(sublayer);
    }
    return mask;
}

std::string SkipSet::text() const {
    const std::string attention = ranges(*this, 0);
    const std::string mlp = ranges(*this, 1);
    std::string text = attention.empty() ? "" : "attn:" + attention;
    if (!mlp.empty()) text += (text.empty() ? "mlp:" : " mlp:") + mlp;
    return text;
}

std::string SkipSet::strip() const {
    std::string lines[2] = {"attention  ", "MLP        "};
    for (int sublayer = 0; sublayer < 2 * layers_; ++sublayer) {
        lines[sublayer % 2] += skips(sublayer) ? '#' : '.';
    }
    return lines[0] + '\n' + lines[1];
}

}  // namespace paceline
