// FakeBackend lives with the other parts of the toy decode (tests/support/toy).
#pragma once

#include "tests/support/toy/toy_backend.hpp"
