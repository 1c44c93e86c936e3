// Numbers as a kernel reads them: with FOUR, which says that rows are multiples of four long, four at once.
#ifdef FOUR
alias Number = vec4<f32>;
const WIDTH = 4u;
#else
alias Number = f32;
const WIDTH = 1u;
#endif
