#include "ipc/base/json_fault.hpp"

#include <doctest/doctest.h>

namespace paceline {

TEST_CASE("what is not JSON is told by what its authors know of it") {
    CHECK(json_fault(R"({"a": NaN})", 7, "") == "byte 7: NaN is not JSON; write null or a number");
    CHECK(json_fault(R"([-Infinity])", 3, "") ==
          "byte 3: Infinity is not JSON; write null or a number");
    CHECK(json_fault("[\"a\xff\"]", 5, "ill-formed") == "byte 4 (0xff) is not UTF-8");
    CHECK(json_fault(R"(["\ud83d x"])", 9, "must be followed by a surrogate") ==
          "byte 9: \\ud83d is half of a surrogate pair, which is no character");
    CHECK(json_fault(R"(["\ud83d\u0041"])", 14, "must be followed by a surrogate") ==
          "byte 14: \\ud83d is half of a surrogate pair, which is no character");
    // A byte behind the place where the parser stopped is not the reason.
    CHECK(json_fault("[x \xff", 2,
                     "[a] parse error at line 1: while parsing - invalid; last read: 'x'") ==
          "byte 2: invalid");
    CHECK(json_fault("1e999", 0, "[json.exception.out_of_range.406] number overflow") ==
          "number overflow");
    CHECK(json_fault("", 1, "unexpected end") == "byte 1: unexpected end");
}

}  // namespace paceline
