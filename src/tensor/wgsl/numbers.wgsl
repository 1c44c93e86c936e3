// Numbers as a kernel reads them: four at once with FOUR, for rows whose length is a multiple of four.
#ifdef FOUR
alias Number = vec4<f32>;
const WIDTH = 4u;
#else
alias Number = f32;
const WIDTH = 1u;
#endif
