// The files that the server carries in itself: the page at / and the description of the API.
//
// The page is one document: page.html with page.css and the scripts of its folder in it. Its
// Content-Security-Policy allows style and script by their digests and nothing else: no other
// script or style, no other host.
// Pure.
#pragma once

#include "launch/api/reply.hpp"

namespace paceline::serve {

[[nodiscard]] Reply page_reply();
[[nodiscard]] Reply openapi_reply();

}  // namespace paceline::serve
