// Where the files of the source tree lie that test programs read: fixtures, shapes, configurations.
//
// $PACELINE_SOURCE_TREE, where it is set: a program that was built elsewhere, as those of an
// archive of `tests/gpu --pack`, finds its files by it. Otherwise the checkout that the program was
// built from. Any thread.
#pragma once

#include <string>

namespace paceline::testing {

/// The folder that holds tests/, bench/ and configs/; without a slash at the end.
[[nodiscard]] std::string source_tree();

/// source_tree()/tests/fixtures.
[[nodiscard]] std::string fixtures();

}  // namespace paceline::testing
