#include "model/tokenizer/char_class.hpp"

#include <algorithm>
#include <memory>

#include "model/tokenizer/unicode_tables.hpp"

namespace paceline::unicode {
namespace {

constexpr std::size_t kCodePoints = 0x110000;

/// Zeroed by calloc's pages, so that memory is spent only where characters are assigned.
struct ClassTable {
    std::unique_ptr<std::uint8_t[]> classes = std::make_unique<std::uint8_t[]>(kCodePoints);
    ClassTable() {
        for (const ClassRange& range : class_ranges()) {
            std::fill(&classes[range.first], &classes[range.last] + 1, range.classes);
        }
    }
};

}  // namespace

std::uint8_t char_class(char32_t code) {
    static const ClassTable table;
    return table.classes[code];
}

}  // namespace paceline::unicode
