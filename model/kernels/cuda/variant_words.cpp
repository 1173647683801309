#include "model/kernels/cuda/variant_words.hpp"

#include <algorithm>

namespace paceline::cuda {
namespace {

std::string allowed_words() {
    std::string words;
    for (const NamedVariants& named : kNamedVariants)
        words += (words.empty() ? "" : ", ") + std::string{named.name};
    return words;
}

Error bad(const std::string& what) {
    return {Errc::BadArgument, what};
}

}  // namespace

Result<Variants> parse_variants(std::string_view list) {
    Variants all;
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        const std::string_view word = list.substr(begin, end - begin);
        const auto* const named =
            std::find_if(kNamedVariants.begin(), kNamedVariants.end(),
                         [&](const NamedVariants& one) { return one.name == word; });
        if (named == kNamedVariants.end())
            return bad("unknown variant '" + std::string{word} + "', allowed: " + allowed_words());
        const Variants& one = named->variants;
        all.early_launch |= one.early_launch;
        all.finish_ahead |= one.finish_ahead;
        begin = end + 1;
    }
    return all;
}

std::string variants_text(const Variants& variants) {
    std::string text;
    const auto add = [&](bool is_on, std::string_view word) {
        if (is_on) text += (text.empty() ? "" : ",") + std::string{word};
    };
    add(variants.early_launch, "early-launch");
    add(variants.finish_ahead, "finish-ahead");
    return text.empty() ? "base" : text;
}

}  // namespace paceline::cuda
