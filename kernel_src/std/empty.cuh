/* empty.cuh: stands for headers whose contents every kernel has without them. */
#pragma once
