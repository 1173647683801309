#include "launch/base/nearest_word.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace paceline {
namespace {

/// Row by row through the table of distances between the beginnings of `a` and `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row[b.size()];
}

}  // namespace

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known) {
    std::string_view nearest;
    std::size_t smallest = 0;
    for (const std::string_view candidate : known) {
        const std::size_t distance = edit_distance(word, candidate);
        const std::size_t limit =
            std::max<std::size_t>(2, std::max(word.size(), candidate.size()) / 3);
        if (distance > limit || (!nearest.empty() && distance >= smallest)) continue;
        nearest = candidate;
        smallest = distance;
    }
    return nearest;
}

std::string known_text(std::string_view word, std::span<const std::string_view> known) {
    std::string text;
    const std::string_view nearest = nearest_word(word, known);
    if (!nearest.empty()) text.append(", did you mean '").append(nearest).append("'?");
    text += " (known:";
    for (const std::string_view& one : known)
        text.append(&one == known.data() ? " " : ", ").append(one);
    return text + ")";
}

}  // namespace paceline
