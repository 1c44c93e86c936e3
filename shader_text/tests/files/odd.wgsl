// A comment first.
a / b // c
// é

  é("x") //
	d; 
  
x  y //z // w
/ 1 /